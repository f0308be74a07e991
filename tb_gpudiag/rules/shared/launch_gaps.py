"""Short launch gaps: the queue ran dry, and the next launch arrived within a millisecond."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import Trigger
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost

# From the end of one operator to the kernel of the next takes 5 to 200 us. In a gap over a millisecond the
# host did something other than launching, and other rules cover that.
LONGEST_GAP_NS = 1_000_000

# What fewer launches remove at least, of host time in such gaps. A module of a public trace saved 22% of
# the cost when a part of it became a CUDA graph (19% fewer launches), and 110% when all of it did.
LEAST_REMOVED = 0.2


def issuing(lost: Lost, device: DeviceFacts) -> Bool:
    """Mask of the segments on the way to a launch in short launch gaps, shape (s,)."""
    return lost.of(*ISSUING) & in_short_dry_gaps(lost, device)


def in_short_dry_gaps(lost: Lost, device: DeviceFacts) -> Bool:
    """Mask of the segments in short gaps that began with an empty queue, shape (s,)."""
    trigger = device.ledger.gaps.trigger[lost.gap]
    dry = np.isin(trigger, np.array([Trigger.STARVED, Trigger.DRAINED], np.uint8))
    return dry & (lost.gap_ns <= LONGEST_GAP_NS)
