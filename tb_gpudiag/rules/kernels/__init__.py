"""GD5xx: kernels that use the GPU poorly."""
