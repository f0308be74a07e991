"""Transfers: copies on the GPU, their direction, and whether the host's side was pageable."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import gpu_names
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
        match_some(events, gpu_names.PAGEABLE, event),
        match_some(events, gpu_names.TO_DEVICE, event),
        match_some(events, gpu_names.TO_HOST, event),
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
