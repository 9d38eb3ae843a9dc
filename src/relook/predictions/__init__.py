"""A model's passes over views: planned, resumable, kept on disk; and the engines that make them."""
