"""Shared by the commands: options and their groups, progress, and the inputs of a command."""
