"""Data loading: the parts of a DataLoader's time, where the trace shows them."""

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
    """Parts of fetching a batch, in order."""

    START = 0  # create the iterator and start its workers
    WAIT = 1  # wait at the queue that workers fill
    RECEIVE = 2  # receive a worker's batch in this process
    ITEMS = 3  # get the data set's items, one after another
    COLLATE = 4  # make a batch of the items
    PIN = 5  # copy the batch into pinned memory


# The innermost of these frames decides.
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
    """Return which of torch's iterators fetched the batches; "" where the trace does not say."""
    for kind in (SINGLE_PROCESS_ITERATOR, MULTI_PROCESS_ITERATOR):
        if any(kind in name for name in host.events.names):
            return kind
    return ""


def batches(host: Host, window: Window) -> tuple[Int64, Int64]:
    """Return when fetching each batch in the window began, and how long it took, in order."""
    loads = host.loads(window)
    return host.events.start_ns[loads], host.events.duration_ns[loads]


def load_parts(host: Host, event: Int64, weight_ns: Int64) -> dict[LoadPart, int]:
    """Add up time by part of data loading: part -> ns, without time whose part is not known.

    event: host events inside data loading, or NONE, shape (k,). weight_ns: the time of each, shape (k,).
    """
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
        part = np.where(here, part_of[events.name[at]], NONE)
        # Items are unpickled, too: a batch is received only inside the queue.
        received |= part == LoadPart.RECEIVE
        found = np.where(here & (part != LoadPart.RECEIVE), part, found)
        at = np.where(here, host.tree.parent[at], NONE)
    found[received & (found == LoadPart.WAIT)] = LoadPart.RECEIVE
    known = found != NONE
    total = np.bincount(found[known], weights=weight_ns[known], minlength=len(LoadPart))
    return {part: int(total[part]) for part in LoadPart if total[part]}
