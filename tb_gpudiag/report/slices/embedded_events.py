"""The timeline's events for a page without a server. The page searches them, shows their details and sums up
ranges itself, as timeline_events and timeline_range do: see frontend/src/wire/file/.

Bounded: of a long recording, the host events of a part of it only, and if need be its GPU work too. Nothing
is left out within that part, so its figures are exact.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.links import LinkKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report.slices.prepared import FAR_NS, NS_PER_US, Prepared, unpack
from tb_gpudiag.report.slices.slice_table import MOST_MATCHES
from tb_gpudiag.report.slices.timeline_chains import MOST_FRAMES
from tb_gpudiag.report.slices.timeline_events import DECIMALS, MOST_CALLS, MOST_LINKS, NUMBERS
from tb_gpudiag.report.slices.timeline_lanes import COLLECTIVE_KIND, Shown
from tb_gpudiag.report.slices.timeline_levels import Boxes
from tb_gpudiag.report.slices.timeline_range import KINDS, MOST_ROWS, PARTS
from tb_gpudiag.vocabulary.marks import MODULE_PREFIX
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

_BITS = 7
_MOST_BYTES = 10

# More than fit into any file. To pack them only to find that out takes long.
_MOST_EVENTS: Final = 600_000

# At most this share of the room is for GPU work and idle time.
_GPU_SHARE: Final = 0.6

# How often to try with fewer events.
_TRIES: Final = 8

_TEXTS: Final = ("stack", "shapes", "types", "settings")

Content = dict[str, Any]


def packed_text(text: str) -> str:
    """Return a text, compressed."""
    return _base64(text.encode("utf-8", "replace"))


def packed_column(values: npt.NDArray[np.generic]) -> str:
    """Return whole numbers, compressed. The page reads them with `unpackedColumn` of wire/file/columns.ts."""
    whole = np.asarray(values).astype(np.int64)
    # Numbers in groups of seven bits, lowest first. The eighth bit says that another one follows.
    left = ((whole << 1) ^ (whole >> 63)).view(np.uint64)
    length = np.ones(len(left), np.int64)
    for group in range(1, _MOST_BYTES):
        length += left >> np.uint64(_BITS * group) != 0
    end = np.cumsum(length)
    found = np.zeros(int(end[-1]) if len(end) else 0, np.uint8)
    for group in range(int(length.max(initial=0))):
        has = length > group
        more = np.where(length[has] > group + 1, 128, 0)
        bits = (left[has] >> np.uint64(_BITS * group)) & np.uint64(127)
        found[(end - length)[has] + group] = bits.astype(np.int64) + more
    return _base64(found.tobytes())


def differences(values: npt.NDArray[np.generic]) -> Int64:
    """Return the first number, and by how much each other one is more than the one before it."""
    whole = np.asarray(values).astype(np.int64)
    return np.r_[whole[:1], whole[1:] - whole[:-1]]


def _base64(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")


class FilePart(NamedTuple):
    """A part of the recording. The events that reach into it are in the file."""

    start_ns: int
    end_ns: int

    def overlaps(self, start_ns: Int64, end_ns: Int64) -> Bool:
        """Mask of the spans that reach into the part. A span without length is where it starts."""
        return (start_ns < self.end_ns) & (np.maximum(end_ns, start_ns + 1) > self.start_ns)


@dataclass(frozen=True, eq=False)
class Embedded:
    """The events of a file, and which parts of the recording have them."""

    content: Content
    size: int  # of the content, in characters
    gpu: FilePart
    host: FilePart
    start_ns: Int64  # of all events of the trace, ascending

    def count(self, start_us: float, end_us: float) -> float:
        """Return about how many events are in a range; infinite if the file does not have all of them."""
        low, high = round(start_us * NS_PER_US), round(end_us * NS_PER_US)
        if any(low < part.start_ns or high > part.end_ns for part in (self.gpu, self.host)):
            return math.inf
        first, stop = np.searchsorted(self.start_ns, [low, high])
        return float(stop - first)


WHOLE: Final = FilePart(-FAR_NS, FAR_NS)
NOTHING: Final = FilePart(0, 0)


def embedded_events(prepared: Prepared, room: int) -> Embedded:
    events = _Events(prepared)
    gpu = host = WHOLE
    content = events.packed(gpu, host) if len(events.boxes) <= _MOST_EVENTS else None
    if content is None or _size(content) > room:
        for_gpu = round(room * _GPU_SHARE)
        gpu = events.largest(events.is_work, for_gpu, 0, lambda part: events.packed(part, NOTHING))
        used = _size(events.packed(gpu, NOTHING))
        host = events.largest(~events.is_work, room, used, lambda part: events.packed(gpu, part))
        content = events.packed(gpu, host)
    return Embedded(content, _size(content), gpu, host, np.sort(events.boxes.start_ns))


def _size(content: Content) -> int:
    return sum(len(text) for text in [content["about"], *content["columns"].values()])


class _Events:
    """The events of all lanes, by row and start."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.shown = Shown(prepared)
        found = self.shown.boxes(np.flatnonzero(self.shown.are_events))
        self.boxes = found.take(np.lexsort((found.start_ns, found.row)))
        self.is_work = self.shown.rows_of("stream")[self.boxes.row]

    def largest(self, of: Bool, room: int, used: int, pack: Callable[[FilePart], Content]) -> FilePart:
        """Return a part of the recording whose events have room. of: mask of those that the part limits;
        used: room that others take."""
        start = np.sort(self.boxes.start_ns[of])
        count = len(start)
        if count <= _MOST_EVENTS:
            size = _size(pack(WHOLE))
            if size <= room:
                return WHOLE
            count = int(count * (room - used) / (size - used))
        start = start[np.searchsorted(start, self._begin_ns) :]
        count = min(count, len(start) - 1, _MOST_EVENTS)
        for _ in range(_TRIES):
            if count <= 0:
                break
            part = FilePart(self._begin_ns, int(start[count]))
            size = _size(pack(part))
            if size <= room:
                return part
            count = int(0.95 * count * max(room - used, 0) / (size - used))
        return NOTHING

    @property
    def _begin_ns(self) -> int:
        """Start of the second recorded step, because the first one is often unlike the others. With fewer
        steps, that of everything."""
        steps = self.prepared["step_start_ns"]
        return int(steps[1]) if len(steps) > 2 else WHOLE.start_ns

    def packed(self, gpu: FilePart, host: FilePart) -> Content:
        """Return what reaches into these parts."""
        starts, ends = self.boxes.start_ns, self.boxes.start_ns + self.boxes.duration_ns
        kept = np.where(self.is_work, gpu.overlaps(starts, ends), host.overlaps(starts, ends))
        boxes = self.boxes.take(kept)
        detail, of_event = np.unique(self.prepared["span_detail"][boxes.number], return_inverse=True)
        details = {name: self.prepared[f"detail_{name}"][detail] for name in (*_TEXTS, *NUMBERS, *DECIMALS)}
        texts = np.unique(np.concatenate([boxes.name, *(details[name] for name in _TEXTS)]))
        texts = texts[texts != NONE]
        meta = self.shown.meta
        about = {
            "start_ns": meta["start_ns"],
            "end_ns": meta["end_ns"],
            "gpu": _described(gpu),
            "host": _described(host),
            "lanes": self.shown.lanes,
            "chains": [{k: chain[k] for k in _CHAIN} for chain in meta["chains"]],
            "rows": np.bincount(boxes.row, minlength=len(self.shown.lane_of_row)).tolist(),
            "texts": [self.shown.text(int(i)) for i in texts],
            "details": {
                name: np.where(details[name] == NONE, NONE, np.searchsorted(texts, details[name])).tolist()
                for name in _TEXTS
            }
            | {name: details[name].tolist() for name in (*NUMBERS, *DECIMALS)},
            **_CONSTANTS,
        }
        columns = {
            **self._columns(boxes),
            "name": np.searchsorted(texts, boxes.name),
            "detail": of_event,
            **self._links(boxes),
            **self._idle(gpu),
            **self._queues(gpu),
        }
        return {
            "gpu": _in_us(gpu),
            "host": _in_us(host),
            "about": packed_text(json.dumps(about)),
            "columns": {name: packed_column(column) for name, column in columns.items()},
        }

    def _columns(self, boxes: Boxes) -> dict[str, Int64]:
        """Return columns with an entry per event; `id` has one per event with `has_id`."""
        number = boxes.number.astype(np.int64)
        id_ = self.prepared["span_number"][number].astype(np.int64)
        # By how much the index of each event's parent differs from that of the event that begins last in
        # the row above: hardly ever at all.
        place = np.full(len(self.prepared["span_parent"]) + 1, NONE, np.int64)  # NONE stays NONE
        place[boxes.number] = np.arange(len(boxes))
        parent = place[self.prepared["span_parent"][boxes.number].astype(np.int64)]
        low = int(boxes.start_ns.min(initial=0))
        stride = int(boxes.start_ns.max(initial=0)) - low + 1
        row, start = boxes.row.astype(np.int64), boxes.start_ns - low
        above = np.searchsorted(row * stride + start, (row - 1) * stride + start, side="right") - 1
        depth = row - self.shown.first_row[self.shown.lane_of_row[row]]
        is_inner = (depth > 0) & ~self.shown.rows_of("stream")[row]
        expected = np.where(is_inner & (row[above] == row - 1), above, NONE)
        return {
            "start_ns": differences(boxes.start_ns),
            "duration_ns": boxes.duration_ns,
            "kind": boxes.kind.astype(np.int64),
            "number": differences(number),
            "parent": (parent - expected),
            "has_id": (id_ > 0).astype(np.int64),
            "id": differences(id_[id_ > 0]),
        }

    def _links(self, boxes: Boxes) -> dict[str, Int64]:
        """Return the links between events of the file, and to events that no lane shows."""
        here = mask_of(boxes.number, len(self.prepared["span_parent"]))
        elsewhere = np.zeros_like(here)
        elsewhere[self.boxes.number] = True
        elsewhere &= ~here
        first, second = (np.asarray(self.prepared[f"link_{end}"]).astype(np.int64) for end in _ENDS)
        kept = (here[first] | here[second]) & ~elsewhere[first] & ~elsewhere[second]
        return {
            "link_first": differences(first[kept]),
            "link_second": differences(second[kept]),
            "link_kind": np.asarray(self.prepared["link_kind"])[kept].astype(np.int64),
        }

    def _idle(self, part: FilePart) -> dict[str, Int64]:
        """Return gaps and the segments of the idle ledger. A chain is a device's place in `chains`. Gaps are
        numbered through all devices."""
        found: dict[str, Int64] = {}
        for name, chain in (("gap", self._chain_of_gap), ("cut", self._chain_of_cut)):
            start, end = (np.asarray(self.prepared[f"{name}_{edge}_ns"]) for edge in ("start", "end"))
            kept = part.overlaps(start, end)
            found[f"{name}_start_ns"] = differences(start[kept])
            found[f"{name}_duration_ns"] = (end - start)[kept]
            found[f"{name}_chain"] = chain[kept]
            if name == "cut":
                found["cut_gap"] = differences(np.asarray(self.prepared["cut_gap"])[kept])
                found["cut_cause"] = np.asarray(self.prepared["cut_cause"])[kept].astype(np.int64)
        return found

    def _queues(self, part: FilePart) -> dict[str, Int64]:
        """Return the points of the launch queues' curves, one curve after another, and how many each has."""
        times, depths, counts = [], [], []
        for lane in self.shown.lanes:
            if lane["kind"] == "queue":
                curve = unpack(self.prepared, "queue", lane["curve"])
                low, high = np.searchsorted(curve.time_ns, part)
                own = slice(max(int(low) - 1, 0), int(high))
                times.append(curve.time_ns[own])
                depths.append(curve.value[own])
                counts.append(len(times[-1]))
        none = np.zeros(0, np.int64)
        return {
            "queue_points": np.array(counts, np.int64),
            "queue_time_ns": differences(np.concatenate([none, *times])),
            "queue_depth": differences(np.concatenate([none, *depths])),
        }

    @cached_property
    def _chain_of_gap(self) -> Int64:
        chains = self.shown.meta["chains"]
        return np.repeat(np.arange(len(chains)), [chain["gaps"] for chain in chains])

    @cached_property
    def _chain_of_cut(self) -> Int64:
        return self._chain_of_gap[np.asarray(self.prepared["cut_gap"])]


_ENDS: Final = ("first", "second")
_CHAIN: Final = ("device", "first_gap", "start_ns", "end_ns")

_CONSTANTS: Final[Content] = {
    "causes": [cause.label for cause in Cause],
    "link_kinds": [kind.label for kind in LinkKind],
    "searched": {
        name: [int(each) for each in kinds] + [COLLECTIVE_KIND] * (name == "any")
        for name, kinds in KINDS.items()
    },
    "kinds": {
        "operator": int(Category.CPU_OP),
        "python": int(Category.PYTHON_FUNCTION),
        "annotation": int(Category.USER_ANNOTATION),
        "calls": [int(each) for each in CALL_CATEGORIES],
        "copy": int(Category.MEMCPY),
        "communication": COLLECTIVE_KIND,
    },
    "module_prefix": MODULE_PREFIX,
    "most": {
        "links": MOST_LINKS,
        "calls": MOST_CALLS,
        "frames": MOST_FRAMES,
        "rows": MOST_ROWS,
        "matches": MOST_MATCHES,
        "parts": PARTS,
    },
}


def _described(part: FilePart) -> list[int] | None:
    """Return start and end of a part; None for the whole recording."""
    return None if part == WHOLE else list(part)


def _in_us(part: FilePart) -> dict[str, float] | None:
    if part == WHOLE:
        return None
    return {"start_us": part.start_ns / NS_PER_US, "end_us": part.end_ns / NS_PER_US}
