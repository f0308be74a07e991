"""Keeps the steps of a rank in a helper process: writes them for TensorBoard, finds drifts, compares ranks.

Ranks share files below `DIR_NAME/gpudiag/clock`, and no connection: each writes `rank-N/now`, and rank 0
writes `order`, which says which ranks record next. The tab and assistants read them, too: see
clock_state.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.trace.files.file_names import MADE, NOW, ORDER
from tb_gpudiag.trace.step_clocks.clock_state import (
    MOST_RECORDINGS,
    ClockRecording,
    RankSteps,
    is_order,
    rank_now,
    read_fields,
)
from tb_gpudiag.training.event_records import append_scalars
from tb_gpudiag.training.outliers import coreless_ms
from tb_gpudiag.training.slow_steps import RankWatch, StepDrifts, means
from tb_gpudiag.vocabulary.written import FIRST_PHASE, FULL_LINES, PHASES, STEP, TAGS, TOTAL

# A rank has three looks to read an order before the step at which it holds.
LOOKS_AHEAD: Final = 3

# Ranks that were not heard of for so many looks are gone, or of an earlier job.
HEARD_LOOKS: Final = 6

_kept: dict[tuple[str, int], RankClock] = {}


def answer(request: dict[str, Any], _reply: Reply) -> ChildMessage:
    """Take the rows of a request: see ClockSender. Return what to log and what to record."""
    key = request["where"], request["rank"]
    if key not in _kept:  # the first steps, or it has begun to communicate and is not rank 0 any more
        _kept.clear()
        _kept[key] = RankClock(*key, request["every_s"])
    rows = np.frombuffer(base64.b64decode(request["rows"])).reshape(-1, FIRST_PHASE + len(PHASES))
    now_s = time.time()
    _kept[key].keep(ClockRecording(file, why, step, now_s) for file, why, step in request["made"])
    return ChildMessage(_kept[key].add(rows, request["world"], now_s))


class RankClock:
    """The steps of one rank. folder: of the run. every_s: between looks.

    Steps are numbered on from an earlier job in the folder: of two series from 0, TensorBoard shows one.
    """

    def __init__(self, folder: str, rank: int, every_s: float) -> None:
        self._folder = os.path.join(folder, "gpudiag", "clock")
        self._rank, self._every_s = rank, every_s
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getppid()}"
        self._events = os.path.join(self._folder, f"rank-{rank}", name)
        self._lines = ClockLines()
        self._drifts = StepDrifts(every_s)
        self._watch = RankWatch()
        self._now: RankSteps | None = None
        self._drifted: dict[str, Any] = {}  # fields of RankSteps
        self._order = read_fields(self._path(ORDER))  # of an earlier job, if there is one
        earlier = rank_now(self._path(f"rank-{rank}"))
        self._first = earlier.step + 1 if earlier is not None else 0
        self._failed = False
        self._made: deque[ClockRecording] = deque(maxlen=MOST_RECORDINGS)
        self._coreless_ms = coreless_ms(os.getppid())

    def keep(self, made: Iterable[ClockRecording]) -> None:
        """Take recordings that the clock has made since the last call."""
        before = len(self._made)
        self._made.extend(replace(one, step=one.step + self._first) for one in made)
        if len(self._made) > before:
            with contextlib.suppress(OSError):
                path = self._path(f"rank-{self._rank}", MADE)
                _write(path, {"recordings": [asdict(one) for one in self._made]})

    def add(self, rows: Float64, world: int, now_s: float) -> dict[str, Any]:
        """Take the steps since the last call, shape (n, 2 + phases). Return lines for the log, and from which
        step on to record, if so."""
        fields: dict[str, Any] = {"said": [], "at": 0, "why": "", "ranks": 0}
        if not len(rows):
            return fields
        before_ms, self._coreless_ms = self._coreless_ms, coreless_ms(os.getppid())
        each_ms = (self._coreless_ms - before_ms) / len(rows)
        rows = np.column_stack([rows, np.full(len(rows), each_ms)])
        rows[:, STEP] += self._first
        try:
            self._write(rows, now_s)
        except OSError as error:
            if not self._failed:
                self._failed = True
                fields["said"] = [f"steps are not written: {error.strerror or error}: {self._folder}"]
        self._note(rows)
        if self._now is None:
            return fields
        order = self._ordered(world, now_s)
        if order is not None:
            if self._rank == 0:
                fields["said"].append(order["why"])
            if self._rank in order["ranks"]:
                # The rank that gave it counts from a first step of its own.
                fields.update(at=order["at"] - order["first"], why=order["why"], ranks=len(order["ranks"]))
        return fields

    def _write(self, rows: Float64, now_s: float) -> None:
        lines = [
            (step, time_s, {tag: ms for tag, ms in zip(TAGS, values, strict=True) if ms == ms})
            for step, time_s, values in self._lines.of(rows, now_s)
        ]
        if lines:
            append_scalars(self._events, lines)

    def _note(self, rows: Float64) -> None:
        """Find drifts, and keep what this rank says of itself."""
        drift = self._drifts.add(rows)
        if drift is not None:
            self._drifted = {
                "drifts": self._drifted.get("drifts", 0) + 1,
                "since": drift.since,
                "gradual": drift.gradual,
                "longer_ms": drift.longer_ms.tolist(),
            }
        if self._drifts.recent:
            step_ms, *phases_ms, core_ms = np.median(self._drifts.recent, axis=0)[TOTAL:].tolist()
            about = self._rank, int(rows[-1][STEP]), self._drifts.blocks
            self._now = RankSteps(*about, step_ms, phases_ms, core_ms, **self._drifted)

    def _ordered(self, world: int, now_s: float) -> dict[str, Any] | None:
        """Return a new order, if there is one. On rank 0, decide it first."""
        assert self._now is not None
        if world == 1:
            found = self._watch.look([self._now], now_s)
            when = {"at": self._first, "first": self._first, "time_s": now_s}
            order = {**asdict(found), **when} if found else None
            self._tell(order)
            return order
        self._tell(None)
        with contextlib.suppress(OSError):
            if self._rank == 0:
                ranks = list(self._ranks(world))
                found = self._watch.look(ranks, now_s) if len(ranks) > 1 else None
                if found is not None:
                    ahead = int(LOOKS_AHEAD * self._every_s * 1e3 / max(self._now.step_ms, 1e-3)) + 1
                    at = self._now.step + ahead
                    when = {"at": at, "first": self._first, "time_s": now_s}
                    _write(self._path(ORDER), {**asdict(found), **when})
        order = read_fields(self._path(ORDER))
        if order is None or order == self._order or not is_order(order):
            return None
        self._order = order
        return order

    def _tell(self, order: dict[str, Any] | None) -> None:
        """Write what this rank says of itself, and the order of a job of one rank, for others to read."""
        if self._now is not None:
            with contextlib.suppress(OSError):
                _write(self._path(f"rank-{self._rank}", NOW), asdict(self._now))
                if order is not None:
                    _write(self._path(ORDER), order)

    def _ranks(self, world: int) -> Iterator[RankSteps]:
        """Yield what ranks said lately. Times are the file server's: clocks of hosts differ."""
        assert self._now is not None
        yield self._now
        here_s = os.stat(self._path("rank-0", NOW)).st_mtime
        for rank in range(1, world):
            path = self._path(f"rank-{rank}", NOW)
            with contextlib.suppress(OSError):
                if here_s - os.stat(path).st_mtime < HEARD_LOOKS * self._every_s:
                    found = rank_now(os.path.dirname(path))
                    if found is not None:
                        yield found

    def _path(self, *names: str) -> str:
        return os.path.join(self._folder, *names)


class ClockLines:
    """Averages steps to lines, the more of them the longer the run."""

    def __init__(self, full: int = FULL_LINES) -> None:
        self._full = full
        self._lines = 0
        self._rows: Float64 | None = None  # after the last line

    def of(self, rows: Float64, now_s: float) -> Iterator[tuple[int, float, list[float]]]:
        """Yield step, Unix time and values in ms of each line, NaN where none of its steps was timed.

        now_s: when the last row ended.
        """
        ends_s = now_s - (rows[::-1, TOTAL].cumsum()[::-1] - rows[:, TOTAL]) / 1e3
        rows = np.column_stack([rows, ends_s])
        rows = rows if self._rows is None else np.concatenate([self._rows, rows])
        while True:
            each = 2 ** (self._lines // self._full)
            lines = min(len(rows) // each, self._full - self._lines % self._full)
            if not lines:
                self._rows = rows
                return
            groups, rows = rows[: lines * each].reshape(lines, each, -1), rows[lines * each :]
            self._lines += lines
            for last, values in zip(groups[:, -1], means(groups)[:, TOTAL:-1].tolist(), strict=True):
                yield int(last[STEP]), float(last[-1]), values


def _write(path: str, fields: dict[str, Any]) -> None:
    """Write a small file at once: nobody reads half of one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    unfinished = f"{path}.{os.getpid()}.writing"
    with open(unfinished, "w", encoding="ascii") as file:
        json.dump(fields, file)
    os.replace(unfinished, path)
