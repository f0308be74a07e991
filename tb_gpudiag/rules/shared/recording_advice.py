"""How to record a trace that can be diagnosed: advice of the rules about recording and memory."""

from __future__ import annotations

from tb_gpudiag.facts.core.recording import Recorded
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.rules.rule import NO_GPU, CannotTell, Fix

PROFILER_URL = "https://docs.pytorch.org/docs/stable/profiler.html"

GOOD_RECORDING = """\
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=2, active=6, repeat=1),
    on_trace_ready=tensorboard_trace_handler("./log/my_run"),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as prof:
    for step, batch in enumerate(loader):
        train_step(batch)
        prof.step()  # once per step, at its end
        if step == 8:
            break
"""


def record_again(text: str) -> Fix:
    """Return a fix that asks for a better recording."""
    return Fix(text, GOOD_RECORDING, PROFILER_URL)


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
