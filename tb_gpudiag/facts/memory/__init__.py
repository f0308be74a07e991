"""Memory over time: curve, floors, peak, allocation sites, and the allocator's reserve."""
