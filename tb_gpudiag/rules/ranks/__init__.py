"""GD6xx: communication between ranks."""
