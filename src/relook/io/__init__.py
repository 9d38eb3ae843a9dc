"""Files and directories: written atomically, read safely, compared by fingerprints."""
