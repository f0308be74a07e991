"""The verdict: one limiter over the step window, and a sentence that a newcomer understands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.shared.leak import leak_sentences
from tb_gpudiag.rules.shared.lost_time import ISSUING, lost_time
from tb_gpudiag.wording.format import count, share, size_bytes, time_ns

# What computes for this much of the time is what limits the job: all the rest gives a quarter at most.
COMPUTE_SHARE = 0.80

# Below that the largest other part is the limiter, if a fix of it could be noticed at all,
LEAST_SHARE = 0.10

# and if it stands out: where the second is nearly as large, fixing one only uncovers the other.
CLEAR_LEAD = 1.5

# Host-bound jobs lose time in Python and in launching side by side. With this part of it on the way to a
# launch, fewer launches are the fix; below it, the Python between them is.
LAUNCH_PART = 0.40

_SAYS = {
    "input": "the GPU waits for the next batch: the data pipeline limits this job",
    "launch": "the GPU waits for the host (Python, dispatch, launch call) to launch the next small kernel: "
    "launching limits this job",
    "python": "the GPU waits while the host is busy with work of its own (Python, compiling): the host "
    "limits this job",
    "sync": "the GPU runs dry because the host stops to wait for results: synchronisation limits this job",
    "copy": "the GPU copies data instead of computing: transfers limit this job",
    "communication": "the GPU communicates, or the host is inside a collective, and nothing is computed: "
    "communication limits this job",
    "memory": "the GPU waits for memory calls to the driver: the allocator limits this job",
}

_HOST_SAYS = {
    "input": "fetching batches: the data pipeline limits this job",
    "compute": "operators: computing on the CPU limits this job",
    "python": "Python between operators: the host's own code limits this job",
    "communication": "collectives: communication limits this job",
}


@dataclass(frozen=True)
class Verdict:
    """`busy_share` is of the step window on the busiest device, 0 to 1; 0 without one."""

    limiter: str
    sentence: str
    busy_share: float


def find_verdict(facts: Facts) -> Verdict:
    """The limiter is the largest part of the step window, if it is large enough to be called one. A leak that
    ends the job is no limiter, and is said beside it."""
    verdict = _judge(facts)
    leaks = leak_sentences(facts)
    return replace(verdict, sentence=" ".join([verdict.sentence, *leaks])) if leaks else verdict


def _judge(facts: Facts) -> Verdict:
    if facts.trace.kind != "trace":
        return _of_memory(facts)
    if not facts.window.duration_ns:
        return Verdict("unknown", "The trace holds no host or GPU activity, so nothing can be said.", 0.0)
    return _of_host(facts) if facts.device is None else _of_device(facts)


def _of_device(facts: Facts) -> Verdict:
    device = facts.device
    assert device is not None
    window_ns = facts.window.duration_ns
    whole, lost = device.whole, lost_time(facts.window, facts.device, facts.host_pieces)
    computing, idle = int(whole.computing_ns[0]), int(whole.idle_ns.sum())
    busy = (window_ns - idle) / window_ns
    drained = np.zeros(len(Cause), np.int64)
    np.add.at(drained, lost.cause, lost.drained_ns)
    cause = whole.idle_ns[0] - drained

    def of(*causes: Cause) -> int:
        return int(sum(cause[c] for c in causes))

    parts = {
        "input": of(Cause.INPUT),
        "sync": of(Cause.SYNC) + int(drained.sum()),
        "copy": int(whole.copying_ns[0]),
        "communication": int(whole.communicating_ns[0]) + of(Cause.COLLECTIVE),
        "memory": of(Cause.ALLOCATOR),
        "unknown": of(Cause.QUEUED, Cause.UNLINKED, Cause.PROFILER),
    }
    launching, host = of(*ISSUING), of(Cause.PYTHON, Cause.COMPILE)
    name = "launch" if launching >= LAUNCH_PART * (launching + host) else "python"
    parts[name] = launching + host
    start = f"The GPU was busy for {share(busy)} of the step window ({time_ns(window_ns)})"
    first, second = sorted(parts, key=lambda part: -parts[part])[:2]
    most = parts[first]
    if computing >= COMPUTE_SHARE * window_ns or most < LEAST_SHARE * window_ns:
        rest = f"the largest other part, {_NOUN[first]}, is {share(most, window_ns)}"
        said = f"computing limits this job, and faster kernels are what would make it faster; {rest}"
        return Verdict("compute", f"{start}: {said}.", busy)
    if most < CLEAR_LEAD * parts[second]:
        both = " and ".join(f"{share(parts[p], window_ns)} {_NOUN[p]}" for p in (first, second))
        return Verdict("mixed", f"{start}; no single cause limits this job: {both}.", busy)
    if first == "unknown":
        said = "the work was queued or its launch is not in the trace: the cause is not visible"
        return Verdict("unknown", f"{start}. For {share(most, window_ns)} it was idle although {said}.", busy)
    return Verdict(first, f"{start}. For {share(most, window_ns)} of it {_SAYS[first]}.", busy)


_NOUN = {
    "input": "waiting for data",
    "launch": "launching",
    "python": "host work",
    "sync": "synchronising",
    "copy": "copying",
    "communication": "communicating",
    "memory": "memory calls",
    "unknown": "idle for a cause that this trace does not show",
}


_FILES = {"snapshot": "a memory snapshot", "memory_timeline": "a memory timeline"}


def _of_memory(facts: Facts) -> Verdict:
    """Of a file that tells of memory alone. Memory limits a job that did not get what it asked for."""
    start = f"This is {_FILES[facts.trace.kind]}: it tells of memory, and not of time"
    if not facts.memory:
        return Verdict("unknown", f"{start}. No memory was in use.", 0.0)
    memory = facts.memory[0]
    said = f"{memory.name} had {size_bytes(memory.peak_allocated_bytes)} allocated at most"
    if memory.peak_reserved_bytes:
        said += f", and {size_bytes(memory.peak_reserved_bytes)} reserved"
    refused = memory.reserve.out_of_memory
    if refused:
        said += f"; it ran out of memory {count(refused, 'time')}"
    return Verdict("memory" if refused else "unknown", f"{start}. {said}.", 0.0)


def _of_host(facts: Facts) -> Verdict:
    lost = lost_time(facts.window, facts.device, facts.host_pieces)
    seen = (
        "The trace has launch calls but no GPU activity"
        if facts.calls.begin_work
        else "No GPU activity was recorded"
    )
    if facts.trace.metadata.device_properties or seen.startswith("The trace"):
        return Verdict("unknown", f"{seen}, so what the GPU did cannot be known.", 0.0)
    parts = {
        "input": lost.total_ns(lost.of(Cause.INPUT)),
        "compute": lost.total_ns(lost.of(*ISSUING, Cause.ALLOCATOR)),
        "python": lost.total_ns(lost.of(Cause.PYTHON, Cause.COMPILE, Cause.PROFILER)),
        "communication": lost.total_ns(lost.of(Cause.COLLECTIVE, Cause.SYNC)),
    }
    computing = parts.pop("compute")
    first, second = sorted(parts, key=lambda part: -parts[part])[:2]
    most = parts[first]
    start = f"{seen}. On the host"
    if computing >= COMPUTE_SHARE * lost.window_ns or most < LEAST_SHARE * lost.window_ns:
        first, most = "compute", computing
    elif most < CLEAR_LEAD * parts[second]:
        return Verdict("mixed", f"{start}, the time is spread over loading, operators and Python.", 0.0)
    spent = f"{share(most, lost.window_ns)} of the main thread's time goes into {_HOST_SAYS[first]}"
    return Verdict(first, f"{start}, {spent}.", 0.0)
