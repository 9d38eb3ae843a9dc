"""A whole study from one file: its plan, its jobs and its page."""
