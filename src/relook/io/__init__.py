"""Files and directories: written whole or not at all, read safely, known by their fingerprints."""
