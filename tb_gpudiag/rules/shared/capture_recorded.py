"""Recordings of the capture of CUDA and HIP graphs."""

from __future__ import annotations

from tb_gpudiag.facts.core.intervals import clip
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.wording.format import count, share

# If most of the recording is a capture, it says nothing about steps.
MOST = 0.5


def capture_ns(facts: Facts) -> int:
    """How much of the recording captured graphs; 0 if that is not most of it, or goes on in later steps."""
    window = facts.recorded_window
    found = clip(facts.captures.times, window.start_ns, window.end_ns).total
    return found if found >= max(1, MOST * window.duration_ns) and not facts.captures.recur else 0


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
