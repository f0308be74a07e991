"""What is known of the GPU of a job whose trace has no GPU activity."""

from __future__ import annotations

from tb_gpudiag.facts.waiting.gpu_use import GpuUse
from tb_gpudiag.wording.format import in_quotes

# Where nothing is known of the GPU, loading for this share of the main thread's time is worth a sentence. It
# limits the job if the host does not wait for the GPU.
MOSTLY_LOADING = 0.5

# Of a name that the file states.
_LONGEST_NAME = 60


def no_gpu_sentence(use: GpuUse) -> str:
    """Say in one sentence whether the job used a GPU."""
    if use.counted:
        return "The recording has counters of the kernels and not their times."
    if use.launches:
        return "The trace has launch calls but no GPU activity."
    if use.certain:
        return f"The job used {'a GPU of Apple' if use.apple else 'a GPU'}, whose activity was not recorded."
    if use.possible:
        return f"No GPU activity was recorded, and it is not known whether the job used {gpu_name(use)}."
    if use.listed:
        return f"The job ran on the CPU: nothing was moved to {gpu_name(use)}."
    return "No GPU activity was recorded."


def loading_limits(use: GpuUse, loading: float) -> bool:
    """Whether loading limits the job, whatever the GPU does. loading: its share of the main thread's time."""
    return use.keeps_up and loading >= MOSTLY_LOADING


def gpu_name(use: GpuUse) -> str:
    """The GPU that the trace lists, as part of a sentence."""
    return f"the machine's GPU ({in_quotes(use.listed[0], _LONGEST_NAME)})" if use.listed else "a GPU"
