"""GD3xx: synchronizations and copies."""
