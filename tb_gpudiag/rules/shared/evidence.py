"""Evidence that many rules give: time with its share of the step window, averages per step."""

from __future__ import annotations

from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of


def window_time(label: str, nanoseconds: int, window_ns: int) -> Evidence:
    """A duration, followed by its share of the step window."""
    return Evidence(label, duration(nanoseconds), (share_of(nanoseconds, window_ns, "of the step window"),))


def part_time(label: str, nanoseconds: int, whole_ns: int) -> Evidence:
    """A duration, followed by its share of the finding's cost."""
    return Evidence(label, duration(nanoseconds), (share_of(nanoseconds, whole_ns, "of this time"),))


def per_step(total: int, steps: int) -> tuple[Quantity, ...]:
    """A count averaged over the recorded steps, as a detail of evidence; empty without steps."""
    return (number(total / steps, suffix="per step"),) if steps else ()
