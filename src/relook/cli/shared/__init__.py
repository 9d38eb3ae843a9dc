"""What the commands share: options and their groups, progress, what a run knows."""
