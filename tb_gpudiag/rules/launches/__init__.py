"""GD2xx: launches that cost more than they bring."""
