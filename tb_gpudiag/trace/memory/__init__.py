"""Memory snapshots and memory timelines."""
