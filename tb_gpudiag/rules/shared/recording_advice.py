"""How to record a trace that can be diagnosed: advice of the rules about recording and memory."""

from __future__ import annotations

from tb_gpudiag.facts.core.recording import Recorded
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.rules.rule import NO_GPU, CannotTell, Fix
from tb_gpudiag.wording.good_recording import RECORDING

PROFILER_URL = "https://docs.pytorch.org/docs/stable/profiler.html"


def record_again(text: str) -> Fix:
    """Return a fix that asks for a better recording."""
    return Fix(text, RECORDING, PROFILER_URL)


def gpu_memory_not_recorded(device: DeviceFacts | None, recorded: Recorded) -> CannotTell:
    """Say why nothing is known about GPU memory. device: the busiest GPU, None without one."""
    return NO_GPU if device is None else memory_not_recorded(recorded)


def memory_not_recorded(recorded: Recorded) -> CannotTell:
    """Say why nothing is known about a device's memory."""
    if recorded.memory:
        return CannotTell("the trace has no memory events of this device")
    return CannotTell(
        "no memory events were recorded",
        "Record five steps or more with profile_memory=True, or torch.cuda.memory._record_memory_history().",
    )
