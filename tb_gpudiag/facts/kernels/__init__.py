"""GPU kernels: families, roofline, attention, collectives, occupancy."""
