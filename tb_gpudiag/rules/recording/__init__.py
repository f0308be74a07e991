"""GD9xx: the recording itself."""
