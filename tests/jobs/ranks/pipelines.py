"""Digests of pipelines whose stages take equally long and whose messages take no time: ideal timelines."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tests.digest.made import digest, parts
from tests.jobs.ranks.stage import MS

FORWARD_MS = 1
BACKWARD_MS = 2

Order = list[tuple[str, int]]
"""Passes of a stage in a step, such as ("F", 3)."""


def gpipe(stage: int, depth: int, batches: int) -> Order:
    """All forward passes, then all backward passes."""
    return [("F", i) for i in range(batches)] + [("B", i) for i in range(batches)]


def one_f_one_b(stage: int, depth: int, batches: int) -> Order:
    """As many forward passes as there are stages to come, then one backward and one forward pass by turns."""
    ahead = min(batches, depth - stage)
    order: Order = [("F", i) for i in range(ahead)]
    for i in range(batches):
        order.append(("B", i))
        if ahead + i < batches:
            order.append(("F", ahead + i))
    return order


def pipeline(
    order: Callable[[int, int, int], Order],
    depth: int,
    batches: int,
    steps: int = 4,
    *,
    slow: int = -1,
    marks: bool = True,
    devices: int = 1,
) -> list[Digest]:
    """Make the digests of a job with one stage per rank. The stage `slow` takes twice as long."""
    stages = [_Stage(stage, depth, 2 if stage == slow else 1, marks) for stage in range(depth)]
    for step in range(steps):
        done: dict[tuple[str, int, int], int] = {}
        for stage in stages:
            stage.begin(order(stage.number, depth, batches))
        while any(stage.todo for stage in stages):
            for stage in stages:
                stage.advance(step, done)
    computing = batches * (FORWARD_MS + BACKWARD_MS) * MS
    return [stage.digest(computing * stage.slowness, devices) for stage in stages]


class _Stage:
    """A stage as it runs: when it is free, what it has to do, and its messages."""

    def __init__(self, number: int, depth: int, slowness: int, marks: bool) -> None:
        self.number, self.slowness = number, slowness
        self.todo: Order = []
        self._depth, self._marks, self._free = depth, marks, 0
        self._begun: list[int] = []
        self._rows: list[dict[str, Any]] = []

    def begin(self, order: Order) -> None:
        """Begin a step."""
        self.todo = list(order)
        self._begun.append(self._free)

    def advance(self, step: int, done: dict[tuple[str, int, int], int]) -> None:
        """Run as many passes as have their inputs. done: when each pass of each stage ended."""
        while self.todo:
            kind, batch = self.todo[0]
            to_next = 1 if kind == "F" else -1
            source, target = self.number - to_next, self.number + to_next
            if 0 <= source < self._depth:
                if (kind, source, batch) not in done:
                    return
                at = max(self._free, done[kind, source, batch])
                self._message(step, "recv", kind, batch, (source, self.number), at)
                self._free = at
            self.todo.pop(0)
            self._free += (FORWARD_MS if kind == "F" else BACKWARD_MS) * MS * self.slowness
            done[kind, self.number, batch] = self._free
            if 0 <= target < self._depth:
                self._message(step, "send", kind, batch, (self.number, target), self._free)

    def _message(self, step: int, kind: str, of: str, batch: int, pair: tuple[int, int], end: int) -> None:
        mark = f"{'Forward' if of == 'F' else 'Backward'} {batch}" if self._marks else ""
        rows = self._rows
        last = rows[-1] if rows else {"start_ns": 0, "end_ns": 0}
        row = {
            "kind": kind,
            "name": kind,
            "group": "0",
            "sequence": -1,
            "bytes": 1 << 20,
            "step": step,
            "source": pair[0],
            "destination": pair[1],
            "annotation": mark,
            "number": len(rows) + 1,
            "start_ns": self._free,
            "end_ns": end,
            "exposed_ns": end - self._free,
            "host_start_ns": self._free,
            "since_ns": last["start_ns"],
            "communicating_ns": last["end_ns"] - last["start_ns"],
            "computing_ns": self._free - last["end_ns"],
            "idle_ns": parts(),
        }
        rows.append(row)

    def digest(self, computing: int, devices: int) -> Digest:
        """Make the rank's digest. computing: of each step, in ns."""
        return _rank(self.number, self._depth, self._rows, [*self._begun, self._free], computing, devices)


def _rank(
    rank: int, ranks: int, rows: list[dict[str, Any]], borders: list[int], computing: int, devices: int
) -> Digest:
    steps = [
        {
            "name": f"ProfilerStep#{i}",
            "start_ns": start,
            "end_ns": end,
            "steady": True,
            "computing_ns": computing,
            "idle_ns": parts(),
            "host_ns": parts(dispatch=computing),
        }
        for i, (start, end) in enumerate(itertools.pairwise(borders))
    ]
    return digest(
        steps=steps,
        collectives=rows,
        id=f"{rank:032x}",
        worker=f"worker{rank}",
        path=f"run/worker{rank}.pt.trace.json",
        rank=rank,
        world_size=ranks,
        host="node0",
        groups={"0": list(range(ranks))},
        origin_ns=1_700_000_000_000_000_000,
        recording_ns=borders[-1],
        window_end_ns=borders[-1],
        devices=devices,
    )
