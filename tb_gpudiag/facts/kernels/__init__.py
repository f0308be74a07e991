"""GPU kernels: families, roofline, attention, collectives, and how well they fill the GPU."""
