"""Transfers: copies on the GPU, their direction, whether the host's side was pageable, and how fast pinned
memory is copied: as the trace shows it, else by the PCIe link.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import kernel_names
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True, eq=False)
class Transfers:
    """The copies among a trace's GPU work, in order of start. Shape (t,) each."""

    event: Int64
    start_ns: Int64
    end_ns: Int64
    device: Int32
    launch: Int64  # event index of the call, or NONE
    call_start_ns: Int64  # 0 without a call
    call_end_ns: Int64
    bytes: Int64  # NONE where the trace does not say
    pageable: Bool  # one side is pageable host memory: only NVIDIA's traces say so
    to_device: Bool
    to_host: Bool

    @property
    def in_call_ns(self) -> Int64:
        """Duration of the call; 0 without one."""
        return self.call_end_ns - self.call_start_ns

    def ran(self, chosen: Bool | Int64, window: Window) -> Intervals:
        """Return when at least one of the chosen copies ran in the window."""
        return clip(union(self.start_ns[chosen], self.end_ns[chosen]), window.start_ns, window.end_ns)


def find_transfers(work: Work) -> Transfers:
    """Find the copies. Only their names contain direction and kind of memory."""
    events = work.events
    some = np.flatnonzero(events.category[work.event] == Category.MEMCPY)
    event, launch = work.event[some], work.launch[some]
    return Transfers(
        event,
        events.start_ns[event],
        events.end_ns[event],
        events.device[event],
        launch,
        np.where(launch == NONE, 0, events.start_ns[launch]),
        np.where(launch == NONE, 0, events.end_ns[launch]),
        events.bytes[event],
        match_some(events, kernel_names.PAGEABLE, event),
        match_some(events, kernel_names.TO_DEVICE, event),
        match_some(events, kernel_names.TO_HOST, event),
    )


def in_window(transfers: Transfers, device: int, window: Window) -> Bool:
    """Mask of the device's copies that begin in the window, shape (t,)."""
    begins = transfers.start_ns
    return (transfers.device == device) & window.contains(begins)


def round_trips(transfers: Transfers, chosen: Bool, borders: Int64, least_bytes: int) -> tuple[Int64, Int64]:
    """Find copies to the host that are followed by a copy of exactly as many bytes back to the device:
    indices of transfers, (out, back).

    The copy back begins when the copy to the host has ended: before, it copies something else. Between the
    two there is no other copy of at least `least_bytes` between host and device, and no border.
    borders: times of step starts and of fetched batches.
    """
    large = chosen & (transfers.bytes != NONE) & (transfers.bytes >= least_bytes)
    some = np.flatnonzero(large & (transfers.to_host | transfers.to_device))
    out, back = some[:-1], some[1:]
    begins, returns = transfers.start_ns[out], transfers.start_ns[back]
    borders = np.sort(borders)
    together = np.searchsorted(borders, begins, side="right") == np.searchsorted(
        borders, returns, side="right"
    )
    pair = transfers.to_host[out] & transfers.to_device[back] & together
    pair &= (transfers.bytes[out] == transfers.bytes[back]) & (returns >= transfers.end_ns[out])
    return out[pair], back[pair]


LEAST_FOR_SPEED: Final = 1 << 20
"""A pinned copy of fewer bytes does not reach the link's speed."""

# GB/s of 16 lanes in one direction, of what PCIe 3.0, 4.0 and 5.0 state 16, 32 and 63: what large copies
# reach at best. On an H200, 134 MB take 2.4 ms.
_GENERATION_3, _GENERATION_4, _GENERATION_5 = 13.0, 26.0, 55.0
_BY_CAPABILITY: Final = {7: _GENERATION_3, 8: _GENERATION_4}  # later ones have the fifth
_BY_ARCHITECTURE: Final = {"gfx90a": _GENERATION_4}

SLOWEST_LINK: Final = 0.25
"""Share of that which slow links give: of six public recordings with large pinned copies, those of one
direction reach 0.25 to 0.45 of it, and where both directions copy at once, 0.19 and 0.33."""


def pinned_rates(transfers: Transfers, direction: Bool, gpu: DeviceProperties) -> tuple[float, float]:
    """Return the slowest and the fastest rate, in bytes per ns, at which pinned memory is copied in this
    direction: that of the trace's own large copies, if it has any. direction: mask of copies, shape (t,)."""
    duration_ns = transfers.end_ns - transfers.start_ns
    large = direction & ~transfers.pageable & (transfers.bytes >= LEAST_FOR_SPEED) & (duration_ns > 0)
    rates: Float64 = transfers.bytes[large] / duration_ns[large]
    if len(rates):
        median = float(np.median(rates))
        return median, median
    major = gpu.compute_capability[0] if gpu.compute_capability else 0
    fastest = min(
        _BY_CAPABILITY.get(major, _GENERATION_5), _BY_ARCHITECTURE.get(gpu.architecture, _GENERATION_5)
    )
    return SLOWEST_LINK * fastest, fastest
