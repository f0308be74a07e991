"""What a DataLoader's time went into, where the trace shows it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import kind_by_name
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary import operators, torch_frames
from tb_gpudiag.trace.vocabulary.torch_frames import MULTI_PROCESS_ITERATOR, SINGLE_PROCESS_ITERATOR


class LoadPart(IntEnum):
    """In the order in which a batch passes through them."""

    START = 0  # making the iterator, and starting its workers
    WAIT = 1  # at the queue that workers fill
    RECEIVE = 2  # taking a worker's batch over into this process
    ITEMS = 3  # the data set's items, one after another
    COLLATE = 4  # items made into a batch
    PIN = 5  # the batch copied into pinned memory


# What happens inside one of these belongs to it; the innermost one decides.
_FRAMES = (
    (LoadPart.START, torch_frames.LOADER_START),
    (LoadPart.WAIT, torch_frames.LOADER_WAIT),
    (LoadPart.ITEMS, torch_frames.LOADER_FETCH),
    (LoadPart.COLLATE, torch_frames.LOADER_COLLATE),
    (LoadPart.PIN, torch_frames.LOADER_PIN),
    (LoadPart.RECEIVE, torch_frames.LOADER_RECEIVE),
)
# Without frames, operators identify these two; with frames, items may use the same operators.
_OPERATORS = (
    (LoadPart.COLLATE, operators.COLLATE),
    (LoadPart.PIN, operators.PIN),
)


def loader_kind(host: Host) -> str:
    """Which of torch's iterators fetched; "" where the trace does not say."""
    for kind in (SINGLE_PROCESS_ITERATOR, MULTI_PROCESS_ITERATOR):
        if any(kind in name for name in host.events.names):
            return kind
    return ""


def batches(host: Host, window: Window) -> tuple[Int64, Int64]:
    """When the fetching of each batch began, and how long it took; in order."""
    loads = host.loads(window)
    return host.events.start_ns[loads], host.events.duration_ns[loads]


def load_parts(host: Host, event: Int64, weight_ns: Int64) -> dict[LoadPart, int]:
    """ns of each part. event: shape (k,), host events under data loading, or NONE; weight_ns: shape (k,), the
    time that each stands for. What the trace does not tell apart is left out."""
    events = host.events
    part_of = kind_by_name(events.names, _FRAMES, NONE)
    used = part_of[events.name]
    if not ((used != NONE) & (used != LoadPart.RECEIVE)).any():
        part_of = kind_by_name(events.names, _OPERATORS, NONE)
    found = np.full(len(event), NONE, np.int64)
    received = np.zeros(len(event), np.bool_)
    at = event.copy()
    while (at != NONE).any():
        here = (at != NONE) & (found == NONE)
        sign = np.where(here, part_of[events.name[at]], NONE)
        # Items unpickle too: what was received is told by the queue around it.
        received |= sign == LoadPart.RECEIVE
        found = np.where(here & (sign != LoadPart.RECEIVE), sign, found)
        at = np.where(here, host.tree.parent[at], NONE)
    found[received & (found == LoadPart.WAIT)] = LoadPart.RECEIVE
    known = found != NONE
    total = np.bincount(found[known], weights=weight_ns[known], minlength=len(LoadPart))
    return {part: int(total[part]) for part in LoadPart if total[part]}
