"""Short gaps that the host let run dry: idle time on the way to a launch."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Trigger
from tb_gpudiag.facts.facts import DeviceFacts
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost
from tb_gpudiag.trace.events import Bool

# The way from one operator's end to its successor's kernel takes 5 to 200 us. A gap of over a millisecond is
# not made by a launch: the host did something else, and that has a rule of its own.
LONGEST_GAP_NS = 1_000_000


def issuing(lost: Lost, device: DeviceFacts) -> Bool:
    """Shape (s,): the segments on the way to a launch, in short gaps that the host let run dry."""
    return lost.of(*ISSUING) & in_short_dry_gaps(lost, device)


def in_short_dry_gaps(lost: Lost, device: DeviceFacts) -> Bool:
    """Shape (s,): the segments of short gaps that the host let run dry."""
    trigger = device.ledger.gaps.trigger[lost.gap]
    dry = np.isin(trigger, np.array([Trigger.STARVED, Trigger.DRAINED], np.uint8))
    return dry & (lost.gap_ns <= LONGEST_GAP_NS)
