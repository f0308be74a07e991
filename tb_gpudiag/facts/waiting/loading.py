"""Data loading: the parts of a DataLoader's time, where the trace shows them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.known_stretches import LoaderStarts
from tb_gpudiag.facts.core.matching import kind_by_name, match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import operators, torch_frames
from tb_gpudiag.vocabulary.torch_frames import MULTI_PROCESS_ITERATOR, SINGLE_PROCESS_ITERATOR


class LoadPart(IntEnum):
    """Parts of fetching a batch, in order."""

    START = 0  # create the iterator and start its workers
    WAIT = 1  # wait for workers: at the queue that they fill, or until one answers
    RECEIVE = 2  # receive a worker's batch in this process
    INDICES = 3  # have the sampler choose the items, which this process does for workers as well
    ITEMS = 4  # get the data set's items, one after another
    COLLATE = 5  # make a batch of the items
    PIN = 6  # copy the batch into pinned memory


# The innermost of these frames decides.
_FRAMES = (
    (LoadPart.START, torch_frames.LOADER_START),
    (LoadPart.WAIT, torch_frames.LOADER_WAIT),
    (LoadPart.INDICES, torch_frames.LOADER_INDICES),
    (LoadPart.ITEMS, torch_frames.LOADER_FETCH),
    (LoadPart.COLLATE, torch_frames.LOADER_COLLATE),
    (LoadPart.PIN, torch_frames.LOADER_PIN),
    (LoadPart.RECEIVE, torch_frames.LOADER_RECEIVE),
)
# Without frames, operators identify these two; with frames, items may use the same operators.
_OPERATORS = ((LoadPart.COLLATE, operators.COLLATE), (LoadPart.PIN, operators.PIN))


def loader_kind(host: Host) -> str:
    """Return which of torch's iterators fetched the batches; "" where the trace does not say."""
    for kind in (SINGLE_PROCESS_ITERATOR, MULTI_PROCESS_ITERATOR):
        if any(kind in name for name in host.events.names):
            return kind
    return ""


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches fetched in the window, in order. Shape (b,) each."""

    start_ns: Int64
    end_ns: Int64
    fresh: Bool  # the first one of a new iterator, as far as the trace shows it
    in_process: Bool  # this process loads it, not a worker that may do so ahead

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def once(self) -> Bool:
        """Mask of the first batches of workers: nothing loads them ahead, once per epoch."""
        return self.fresh & ~self.in_process


def batches(host: Host, starts: LoaderStarts, window: Window) -> Batches:
    """Find the batches whose fetching began in the window."""
    events, loads = host.events, host.loads(window)
    fresh, in_process = np.isin(loads, starts.fresh), host.loads_in_process[loads]
    return Batches(events.start_ns[loads], events.end_ns[loads], fresh, in_process)


def load_parts(host: Host, event: Int64, weight_ns: Int64) -> dict[LoadPart, int]:
    """Add up time by part of data loading: part -> ns, without time whose part is not known.

    event: host events inside data loading, or NONE, shape (k,). weight_ns: the time of each, shape (k,).
    """
    part = load_part(host, event)
    known = part != NONE
    total = np.bincount(part[known], weights=weight_ns[known], minlength=len(LoadPart))
    return {one: int(total[one]) for one in LoadPart if total[one]}


def load_part(host: Host, event: Int64) -> Int64:
    """Return the LoadPart of each event inside data loading, or NONE; shape of `event`."""
    events = host.events
    part_of = kind_by_name(events, _FRAMES, NONE)
    used = part_of[events.has_name]
    if not ((used != NONE) & (used != LoadPart.RECEIVE)).any():
        part_of = kind_by_name(events, _OPERATORS, NONE)
    part = part_of[events.name]
    blocked = match(events, torch_frames.LOADER_BLOCKED)
    if blocked.any():
        part[blocked & host.tree.under(match(events, torch_frames.LOADER_ANSWER))] = LoadPart.WAIT
    receives = part == LoadPart.RECEIVE
    receiving, inside = (
        np.where(event == NONE, NONE, host.tree.nearest_of(chosen)[event])
        for chosen in (receives, (part != NONE) & ~receives)
    )
    found = np.where(inside == NONE, NONE, part[inside])
    # Items are unpickled as well, but a batch is received only inside the queue.
    received = (receiving != NONE) & (host.tree.depth[receiving] > host.tree.depth[inside])
    found[received & (found == LoadPart.WAIT)] = LoadPart.RECEIVE
    return found
