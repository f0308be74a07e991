"""GD4xx: leaks, peaks and fragmentation."""
