"""Recordings with so little GPU work that nothing follows about a job."""

from __future__ import annotations

from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.wording.format import count, time_ns

# The smallest job in public traces has 61 kernels and copies in 0.3 ms: one pass of a small BERT. Tests of
# the profiler have 5 of them in 0.05 ms. A few long kernels are work enough, and so are several steps.
FEWEST_WORK = 10
LEAST_BUSY_NS = 1_000_000

# A GPU that is busy half of the time does what the job is about.
MOST_BUSY = 0.5

SEVERAL_STEPS = 2


def little_work(device: DeviceFacts | None, steps: Steps) -> str:
    """Describe the recorded GPU work if there is too little to judge a job by, else return ""."""
    if device is None or len(steps) >= SEVERAL_STEPS:
        return ""
    account, pieces = device.window_account, len(device.busy.work)
    busy_ns = int(account.computing_ns[0] + account.communicating_ns[0] + account.copying_ns[0])
    window_ns = int(account.end_ns[0] - account.start_ns[0])
    if pieces >= FEWEST_WORK or busy_ns >= LEAST_BUSY_NS or busy_ns >= MOST_BUSY * window_ns:
        return ""
    verb = "was" if pieces == 1 else "were"
    return f"{count(pieces, 'kernel or copy', 'kernels and copies')} ({time_ns(busy_ns)}) {verb} recorded"
