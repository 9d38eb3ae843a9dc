"""Workers that make the model's passes elsewhere: those of a Ray cluster."""
