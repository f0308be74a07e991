"""GD1xx: why the GPU was idle."""
