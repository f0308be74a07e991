"""Recordings that say less about the job than they seem to: of first-run work or the capture of a graph,
without GPU activity, with kernels whose records the tracer lost, or from which somebody removed events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import clip, coverage
from tb_gpudiag.facts.waiting.gpu_use import GpuUse
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import around, count, in_quotes, share, time_ns

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts

# Step times vary by 1 to 2% from run to run: less is not worth mentioning.
LEAST_SHARE = levels.SLIGHT

# Launches without kernels at the end of a recording are worth a hint: they were still waiting when it ended.
LEAST_LAUNCHES = levels.NOTICEABLE

# From here on, the GPU may be so much busier than the trace shows that this has to be said first.
SPOILS_SHARE = levels.SIZEABLE

# Of 243 public recordings, the numbers of all but two follow one another in 98.7% of the cases and more. Two
# were thinned to 1% of their operators, in runs of a few: there it is 38%.
FOLLOWED = levels.NEARLY_ALL

# Fewer operators are a test, or threads with a few each, whose numbers are far apart.
FEWEST_NUMBERS = 100


def is_thinned(facts: Facts) -> bool:
    """Whether somebody removed operators from the file. Calls and GPU work went with them, so its gaps and
    counts are not the job's."""
    numbers = facts.operator_numbers
    gone = numbers.missing > (1 - FOLLOWED) * (numbers.known + numbers.missing)
    return numbers.known >= FEWEST_NUMBERS and (numbers.followed < FOLLOWED or gone)


def thinned_sentence(facts: Facts) -> str:
    """Say how much of the recording is left."""
    numbers = facts.operator_numbers
    return (
        f"Events were removed from this file: its operators' numbers run from {numbers.first:,} to "
        f"{numbers.last:,}, and {numbers.known:,} of them are left."
    )


def lost_ns(facts: Facts) -> int:
    """The busiest device's idle time over the recorded steps in which lost kernels may have run."""
    if facts.device is None or not len(facts.lost_work.lost):
        return 0
    ledger = facts.device.ledger
    return int(ledger.inside(facts.recorded_window)[ledger.lost].sum())


def lost_share(facts: Facts) -> float:
    """That time as a share of the recorded steps; 0 where it is not worth mentioning."""
    found = lost_ns(facts) / max(1, facts.recorded_window.duration_ns)
    return found if found >= LEAST_SHARE else 0.0


def lost_title(facts: Facts) -> str:
    """Say how many launches lack their kernels, and how much time that is."""
    lost, launches = len(facts.lost_work.lost), len(facts.lost_work.launches)
    said = f"The kernels of {lost:,} of {count(launches, 'launch', 'launches')} are missing"
    if not lost_share(facts):
        return said
    return f"{said}: {share(lost_ns(facts), facts.recorded_window.duration_ns)} of the recording"


def lost_sentence(facts: Facts) -> str:
    """What a verdict says before anything else, where much was lost."""
    return f"{lost_title(facts)} ({time_ns(lost_ns(facts))})."


def steps_end_unseen(facts: Facts) -> bool:
    """Whether kernels are missing in the step window: a step ends with its last kernel."""
    return facts.device is not None and facts.device.lost.total >= LEAST_SHARE * facts.window.duration_ns


def capture_ns(facts: Facts) -> int:
    """How much of the recording captured graphs; 0 if that is not most of it, or goes on in later steps."""
    window, times = facts.recorded_window, facts.captures.times
    if not len(times.start):  # as usual, and each rule asks
        return 0
    found = clip(times, window.start_ns, window.end_ns).total
    return found if found >= max(1, levels.HALF * window.duration_ns) and not facts.captures.recur else 0


def capture_sentence(facts: Facts) -> str:
    """Say what such a recording is; "" for others."""
    found = capture_ns(facts)
    if not found:
        return ""
    launches = count(len(facts.captures.launches), "launch was", "launches were")
    of_recording = share(found, facts.recorded_window.duration_ns)
    return (
        f"This is the capture of a CUDA or HIP graph, {of_recording} of the recording: {launches} put into a "
        "graph, and none of them is meant to run. Nothing here shows how fast the job is."
    )


# Where nothing is known of the GPU, loading for this share of the main thread's time is worth a sentence. It
# limits the job if the host does not wait for the GPU.
MOSTLY_LOADING = levels.HALF

# Of a name that the file states.
_LONGEST_NAME = 60


def nothing_of_the_job(facts: Facts) -> bool:
    """Whether the file has nothing that a job does: the profiler's own calls are all there is."""
    use = facts.gpu_use  # with stacks, the profiler's last wait is among its operators
    of_gpu = use.launches or use.memory_events or use.waits or use.copies
    return facts.device is None and not (of_gpu or facts.recorded.memory or facts.host.of_job)


def no_gpu_sentence(use: GpuUse) -> str:
    """Say in one sentence whether the job used a GPU: the first that holds."""
    gpu = "a GPU of Apple" if use.apple else "a GPU"
    said = (
        (use.counted, "The recording has counters of the kernels and not their times."),
        (use.launches, "The trace has launch calls but no GPU activity."),
        (use.certain, f"The job used {gpu}, whose activity was not recorded."),
        (
            use.possible,
            f"No GPU activity was recorded, and it is not known whether the job used {gpu_name(use)}.",
        ),
        (use.listed, f"The job ran on the CPU: nothing was moved to {gpu_name(use)}."),
        (use.error, f"The job ran on the CPU: {gpu_error(use)}."),
        (True, "No GPU activity was recorded."),
    )
    return next(sentence for holds, sentence in said if holds)


def gpu_error(use: GpuUse) -> str:
    """Say inside a sentence why CUDA or HIP has no GPU."""
    why = _GPU_ERRORS.get(use.error, "torch could not start a GPU")
    return f"{why} (error {use.error})"


# The numbers of CUDA's runtime API, which HIP has as well: without a driver, the driver is "insufficient".
_NO_DRIVER = "torch found no GPU driver, or one that is too old for it"
_GPU_ERRORS = {35: _NO_DRIVER, 803: _NO_DRIVER, 804: _NO_DRIVER, 100: "torch found no GPU"}


def loading_limits(use: GpuUse, loading: float) -> bool:
    """Whether loading limits the job, whatever the GPU does. loading: its share of the main thread's time."""
    return use.keeps_up and loading >= MOSTLY_LOADING


def gpu_name(use: GpuUse) -> str:
    """The GPU that the trace lists, as part of a sentence."""
    return f"the machine's GPU ({in_quotes(use.listed[0], _LONGEST_NAME)})" if use.listed else "a GPU"


_NAMED = 3

_LOADER = "starting a data loader, until its first batch"


def first_run_parts(facts: Facts) -> list[tuple[str, str]]:
    """Return the calls in which most of the step window's first-run work is, each with its share of the
    window, such as `45.7%`, `in "cudaLaunchKernel"`; none if none is large."""
    lost = lost_time(facts)
    of_first_run = lost.of(Cause.INITIALIZATION)
    loading = of_first_run & _starts_loader(facts, lost)
    named = np.flatnonzero(of_first_run & ~loading & (lost.event != NONE))
    event, length_ns = lost.event[named], lost.length_ns[named]
    names, first, place = np.unique(facts.host.names(event), return_index=True, return_inverse=True)
    time_ns = summed(place, length_ns, len(names))
    most = np.argsort(-time_ns, kind="stable")[:_NAMED].tolist()
    taken = [(int(time_ns[i]), f"in {in_quotes(facts.host.name(int(event[first[i]])), 80)}") for i in most]
    taken = sorted([*taken, (lost.total_ns(loading), _LOADER)], reverse=True)
    least_ns = max(1, levels.SIZEABLE * lost.window_ns)
    return [(share(ns, lost.window_ns), words) for ns, words in taken if ns >= least_ns]


def first_run_sentence(facts: Facts) -> str:
    """Say that it is first-run work, and what it is."""
    parts = ", ".join(words for _, words in first_run_parts(facts))
    return f"First-run work took most of the time{around(', ', parts)}. {_AGAIN}"


_AGAIN = "Record again after a few warm-up steps."


def _starts_loader(facts: Facts, lost: Lost) -> Bool:
    starts: Bool = coverage(facts.loader_starts.once, lost.start_ns, lost.end_ns) > 0
    return starts
