"""`relook study`: the paper's studies, one file per command."""
