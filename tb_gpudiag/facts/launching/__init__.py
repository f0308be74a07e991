"""What launches cost the host, where they come from, and clusters of small kernels."""
