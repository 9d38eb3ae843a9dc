"""The report of a run: one HTML page and the figures of a paper, drawn from its files alone."""
