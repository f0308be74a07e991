"""What reads from a store and writes to one, with a real S3 server and a network that fails."""
