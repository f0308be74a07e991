"""Kernels whose records the tracer lost: how much of the recording they may have run for."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell
from tb_gpudiag.wording.format import count, share, time_ns

# Step times vary by 1 to 2% from run to run: less is not worth mentioning.
LEAST_SHARE = 0.01

# Launches without kernels at the end of a recording are worth a hint: they were still waiting when it ended.
LEAST_LAUNCHES = 0.05

# From here on, the GPU may be so much busier than the trace shows that this has to be said first.
SPOILS_SHARE = 0.10


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


def lost_sentences(facts: Facts) -> str:
    """What a verdict says before anything else; "" if little or nothing was lost."""
    if lost_share(facts) < SPOILS_SHARE:
        return ""
    return f"{lost_title(facts)} ({time_ns(lost_ns(facts))}). What follows is about the rest."


def steps_not_comparable(facts: Facts) -> CannotTell | None:
    """Why step times cannot be compared, if kernels are missing in the step window: a step ends with its last
    kernel."""
    if facts.device is None or facts.device.lost.total < LEAST_SHARE * facts.window.duration_ns:
        return None
    return CannotTell(
        "some kernels were launched and not recorded, so it is not known when their steps ended",
        "Record fewer steps.",
    )
