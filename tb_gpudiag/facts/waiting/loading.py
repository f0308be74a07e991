"""What a DataLoader's time went into, where the trace shows it."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.names import match
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.trace.events import NONE, Int64


class LoadPart(IntEnum):
    """In the order in which a batch passes through them."""

    START = 0  # making the iterator, and starting its workers
    WAIT = 1  # at the queue that workers fill
    RECEIVE = 2  # taking a worker's batch over into this process
    ITEMS = 3  # the data set's items, one after another
    COLLATE = 4  # items made into a batch
    PIN = 5  # the batch copied into pinned memory


# Frames of torch.utils.data; the innermost one decides.
_FRAMES = (
    (LoadPart.START, r"dataloader\.py\(\d+\): (_get_iterator|__init__)"),
    (LoadPart.WAIT, r"dataloader\.py\(\d+\): (_try_get_data|_get_data)"),
    (LoadPart.ITEMS, r"_utils[/\\]fetch\.py\(\d+\): .*"),
    (LoadPart.COLLATE, r"_utils[/\\]collate\.py\(\d+\): .*"),
    (LoadPart.PIN, r"_utils[/\\]pin_memory\.py\(\d+\): .*"),
)
# Inside the queue: a batch that has come is unpickled, and its tensors are mapped.
_RECEIVE = re.compile(
    r"<built-in function loads>|(.*[/\\])?torch[/\\]multiprocessing[/\\]reductions\.py.*", re.S
)
_FOLDER = r"(.*[/\\])?torch[/\\]utils[/\\]data[/\\]"
# Without frames the operators tell of these two; with frames, items may use them too.
_OPERATORS = (
    (LoadPart.COLLATE, r"aten::(_?stack|_?cat)"),
    (LoadPart.PIN, r"aten::_?pin_memory"),
)


SINGLE_PROCESS = "_SingleProcessDataLoaderIter"
MULTI_PROCESS = "_MultiProcessingDataLoaderIter"


def loader_kind(host: Host) -> str:
    """Which of torch's iterators fetched; "" where the trace does not say."""
    for kind in (SINGLE_PROCESS, MULTI_PROCESS):
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
    signs = [(part, re.compile(_FOLDER + tail, re.S)) for part, tail in _FRAMES]
    if not any(match(events, pattern).any() for _, pattern in signs):
        signs = [(part, re.compile(name)) for part, name in _OPERATORS]
    else:
        signs.append((LoadPart.RECEIVE, _RECEIVE))
    part_of = np.full(len(events.names), NONE, np.int64)
    for part, pattern in signs:
        part_of[[pattern.fullmatch(name) is not None for name in events.names]] = part
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
