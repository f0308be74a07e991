"""What names in traces mean: calls, operators, Python frames, kernels."""
