"""What the host did while the GPU waited: synchronizations, data loading, compiling, host tasks."""
