"""The CPU's fast path: compiled kernels with the bytes of the torch ones."""
