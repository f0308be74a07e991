"""Options of torch.profiler, which advice for Nsight Systems does not name."""

from __future__ import annotations

# What only torch.profiler has.
TORCH_ONLY = ("prof.step", "schedule(", "ProfilerActivity", "_ExperimentalConfig", "export_chrome_trace")
OPTIONS_OF_TORCH = ("with_stack", "profile_memory", "record_shapes=True")


def assert_no_option_of_torch(text: str) -> None:
    """Options may be named after torch.profiler, as another way, and within emit_nvtx."""
    assert not [word for word in TORCH_ONLY if word in text], text
    rest = text.replace("emit_nvtx(record_shapes=True)", "").partition("torch.profiler")[0]
    assert not [word for word in OPTIONS_OF_TORCH if word in rest], text
