"""Engines that run the model's passes elsewhere: on a Ray cluster."""
