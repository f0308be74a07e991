"""When phases begin on a GPU: events on its current stream, read when the GPU has passed them."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from typing import Any, Final

# A step of more phases is one of many small batches, whose rest counts as the last phase.
MOST_MARKS: Final = 512

# Steps whose events the GPU has not passed. With more, the host runs further ahead than any queue allows.
MOST_PENDING: Final = 64

_Marks = list[tuple[int, Any]]


class GpuMarks:
    """Marks of a training whose model is on a GPU.

    cuda: torch.cuda. rows: gets a row per step, in order. garbage: the phase that is host time.
    """

    def __init__(self, cuda: Any, rows: deque[tuple[float, ...]], phases: int, garbage: int) -> None:
        self._cuda, self._rows, self._phases, self._garbage = cuda, rows, phases, garbage
        self._marks: _Marks = []
        self._pending: deque[tuple[int, float, float, _Marks]] = deque()
        self._free: list[Any] = []

    def mark(self, phase: int) -> None:
        """Begin a phase on the GPU, behind the work that it has."""
        # An event in a captured graph has no time.
        if len(self._marks) >= MOST_MARKS or self._cuda.is_current_stream_capturing():
            return
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((phase, event))

    def end_step(self, number: int, total_ms: float, garbage_ms: float) -> None:
        """End a step. The last mark is its end, and begins the next one. A step without marks has NaN."""
        self._pending.append((number, total_ms, garbage_ms, self._marks))
        self._marks = self._marks[-1:]
        if len(self._pending) > MOST_PENDING:
            self._reuse(self._pending.popleft()[3])
        while self._pending and self._is_over(self._pending[0][3]):
            number, total_ms, garbage_ms, marks = self._pending.popleft()
            spent_ms = [0.0 if marks else math.nan] * self._phases
            for (phase, start), (_, end) in pairwise(marks):
                spent_ms[phase] += start.elapsed_time(end)
            spent_ms[self._garbage] = garbage_ms
            self._reuse(marks)
            self._rows.append((number, total_ms, *spent_ms))

    def drop_step(self) -> None:
        """Forget the marks of a step that was recorded."""
        self._reuse(self._marks[1:])  # the first one ends the step before, which may be pending
        self._marks = self._marks[-1:]

    def restart(self, phase: int | None) -> None:
        """Begin a step whose phases are timed after one whose are not. None: the other way round."""
        self._marks = []
        if phase is not None:
            self.mark(phase)

    def _is_over(self, marks: _Marks) -> bool:
        return not marks or marks[-1][1].query()

    def _reuse(self, marks: _Marks) -> None:
        self._free += [event for _, event in marks[:-1]]  # the last one begins the next step
