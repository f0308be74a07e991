"""Operators: how often each was called, where from, and what its calls cost on the host and the GPU."""
