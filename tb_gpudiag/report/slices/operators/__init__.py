"""Tables of operators and kernels, their call stacks, the call tree and the roofline."""
