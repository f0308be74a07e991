"""The structured log of torch.compile (`TORCH_TRACE`): found beside a trace, and read."""
