"""`relook policy`: policies as files, one file per command."""
