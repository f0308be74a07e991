"""What runs inside a training job. Only the helper process imports more than the standard library."""
