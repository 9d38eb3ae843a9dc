"""Compiled kernels for the CPU, which return the same bytes as the torch ones."""
