"""Which tensors on the CPU came and went during a recording, where NotingTensors has noted that: it is known
then what the trace does not show: frees of memory that was allocated before it, and what holds tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.noted_history import History
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, parse_frame, place_frame
from tb_gpudiag.vocabulary.written import MOST_NODES, NODES_PER_STEP


@dataclass(frozen=True)
class NotedTensors:
    """came, went: how many of each size in bytes. holders: of tensors of a size. history: bytes at some steps
    of the job; empty if unknown. others: what the process had beside that, until the first recording began;
    empty if unknown. attached: by how many tensors with a graph of autograd's became more, of each size.
    leaves: those that need gradients, without one. nodes: of these graphs, at steps as in history; empty if
    unknown. roots: what holds tensors with a graph that grows.
    """

    came: Mapping[int, int]
    went: Mapping[int, int]
    holders: Mapping[int, NotedHolder]
    history: History
    others: History
    attached: Mapping[int, int]
    leaves: Mapping[int, int]
    nodes: History
    roots: Mapping[int, NotedHolder]

    @cached_property
    def graph_grows(self) -> bool | None:
        """Whether graphs have more nodes after the recording than before; None if that is not known. The last
        step's may be there both times."""
        ends = [step for step, _ in self.history[-2:]]
        if len(ends) < 2 or [step for step, _ in self.nodes[-2:]] != ends or self.nodes[-2][1] >= MOST_NODES:
            return None
        return self.nodes[-1][1] - self.nodes[-2][1] >= NODES_PER_STEP * (ends[1] - ends[0])

    @cached_property
    def became_more(self) -> frozenset[int]:
        """Sizes of which more tensors came than went."""
        return frozenset(size for size, count in self.came.items() if count > self.went.get(size, 0))


@dataclass(frozen=True)
class NotedGrowth:
    """What was noted of the tensors that a site keeps, as shares of what they hold.

    held: Python holds as much, made during the recording, in tensors of these sizes. The rest may belong to a
        graph, or be no tensor of Python's.
    high: at most by so much there are more tensors than before: others of these sizes went.
    attached, leaf: by so much there are more tensors with a graph, and that need gradients without one.
    holder: what holds most of them. keeper: see NotedHolder.innermost, of the site.
    """

    held: float
    high: float
    attached: float
    leaf: float
    holder: NotedHolder
    keeper: tuple[int, Frame] | None


NOTHING_NOTED: Final = NotedTensors({}, {}, {}, [], [], {}, {}, [], {})


def noted_tensors(metadata: Mapping[str, Any]) -> NotedTensors:
    """Parse what NotingTensors wrote; NOTHING_NOTED if there is nothing, or anything else."""
    came, went = (_counts(metadata.get(key)) for key in ("came", "went"))
    attached, leaves = (_counts(metadata.get(key, {})) for key in ("attached", "leaves"))
    if came is None or went is None or attached is None or leaves is None:
        return NOTHING_NOTED
    history = _history(metadata.get("history"))
    held_at = dict([*history, *_history(metadata.get("warm_up"))])
    return NotedTensors(
        came,
        went,
        noted_holders(metadata.get("holders")),
        history,
        [(at, size - held_at[at]) for at, size in _history(metadata.get("malloc")) if at in held_at],
        attached,
        leaves,
        _history(metadata.get("nodes")),
        noted_holders(metadata.get("roots")),
    )


def _list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else []


def _history(values: Any) -> History:
    """Parse steps and bytes; empty if they are anything else, or not in order."""
    every = _list(values)
    points = [
        (value[0], value[1])
        for value in every
        if isinstance(value, list) and len(value) == 2 and None not in map(noted_number, value)
    ]
    in_order = all(first[0] < second[0] for first, second in pairwise(points))
    return points if in_order and len(points) == len(every) else []


def _counts(values: Any) -> dict[int, int] | None:
    if not isinstance(values, dict):
        return None
    found = {
        int(size): count
        for size, count in values.items()
        if size.encode(errors="replace").isdigit()
        and len(size) < len(str(MOST))
        and noted_number(count) is not None
    }
    return found if len(found) == len(values) else None


def noted_growths(noted: NotedTensors, kept: Iterable[tuple[Int64, str]]) -> list[NotedGrowth]:
    """Compare what each site keeps with what was noted. kept: sizes of each one's allocations, and its stack.
    Sites that keep tensors of one size share what was noted of it."""
    sites = [(Counter[int](one.tolist()), stack) for one, stack in kept]
    sizes = [one for one, _ in sites]
    every = sum(sizes, Counter[int]())
    came = {size: noted.came.get(size, 0) for size in every}
    more = {size: max(0, came[size] - noted.went.get(size, 0)) for size in every}
    held, high, attached, leaf = (dict[int, float]() for _ in range(4))
    for size, count in every.items():
        attached[size] = min(1.0, noted.attached.get(size, 0) / count)
        leaf[size] = min(1.0, noted.leaves.get(size, 0) / count)
        held[size] = min(1.0, came[size] / count)
        high[size] = min(1.0, more[size] / count)
    found = []
    for one, stack in sites:
        holder = noted.holders.get(max(one, key=lambda size: size * one[size], default=0), NO_HOLDER)
        parts = _mean(one, held), _mean(one, high), _mean(one, attached), _mean(one, leaf)
        found.append(NotedGrowth(*parts, holder, holder.innermost(stack)))
    return found


def _mean(sizes: Mapping[int, int], shares: Mapping[int, float]) -> float:
    """Return the mean of shares, weighted by bytes."""
    whole = sum(size * count for size, count in sizes.items())
    return sum(size * count * shares[size] for size, count in sizes.items()) / max(1, whole)


MOST: Final = 2**50
"""No job has so many tensors, or so much memory."""


@dataclass(frozen=True)
class NotedHolder:
    """What holds tensors that came.

    frames: functions that reach them, what is nearest to them first. limit: how many entries their container
    takes, where it has fewer; 0 if none is known. in_graph: share of the tensors that no object of Python's
    refers to, but a graph, or else C++.
    """

    frames: tuple[tuple[Frame, ...], ...]
    limit: int
    in_graph: float

    def innermost(self, stack: str) -> tuple[int, Frame] | None:
        """Return the innermost of the functions around an allocation that reaches what is nearest to what it
        made, and how far that is from it. stack: Python frames, outermost first, one per line."""
        around = [frame for name in reversed(stack.split("\n")) if (frame := place_frame(name)) is not None]
        for level in range(len(self.frames)):
            found = next((frame for frame in around if self.is_reached(level, frame)), None)
            if found is not None:
                return level, found
        return None

    def is_reached(self, level: int, frame: Frame) -> bool:
        """Whether this function of a trace's is one of those that are so far from the tensors."""
        return any(_is_one(frame, noted) for noted in self.frames[level])


NO_HOLDER: Final = NotedHolder((), 0, 0.0)
"""Of tensors of which it was not noted what holds them."""

NOT_NOTED: Final = NotedGrowth(held=1.0, high=1.0, attached=0.0, leaf=0.0, holder=NO_HOLDER, keeper=None)
"""Of a site where nothing was noted: nothing that the allocator does not show."""


def _is_one(frame: Frame, noted: Frame) -> bool:
    """Whether they are one function. The profiler shortens paths; a noted line of 0 is any line."""
    same = frame.function == noted.function and noted.line in (0, frame.line)
    return same and noted.file.endswith(frame.file)


def noted_holders(values: Any) -> dict[int, NotedHolder]:
    """Parse the holders of tensors by their size in bytes; leave out what is anything else."""
    entries = [value for value in _list(values) if isinstance(value, dict)]
    return {
        value["bytes"]: _holder(value)
        for value in entries
        if noted_number(value.get("bytes")) and isinstance(value.get("functions"), list)
    }


def _holder(value: dict[str, Any]) -> NotedHolder:
    levels = [_frames(level) for level in value["functions"] if isinstance(level, list)]
    graph = value.get("graph")
    return NotedHolder(
        tuple(levels),
        noted_number(value.get("limit")) or 0,
        graph if isinstance(graph, float) and 0 <= graph <= 1 else 0.0,
    )


def _frames(names: list[Any]) -> tuple[Frame, ...]:
    found = (parse_frame(name) for name in names if isinstance(name, str))
    return tuple(filter(None, found))


def noted_number(value: Any) -> int | None:
    """Return a size or a count as it was noted; None for anything else."""
    return value if isinstance(value, int) and 0 <= value < MOST else None
