"""How the phases of a step are timed: which steps, by which hooks, on which clock.

An exception that a signal's handler raises in a Python callback of `gc` is lost, as is a Ctrl-C that comes
during a collection: ten of ten with CPython 3.11.7, and none with a callback of C.
"""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, pairwise
from statistics import median
from typing import Any, Final

SHARE: Final = 0.001
"""Timing phases takes at most this share of the time of steps. A block of ten seconds of steps of 1 to 50 ms
has 60 and more timed ones."""

# Each so many steps. What loops do now and then, they do every 2, 8, 10 or 100 steps, which have no common
# factor with these: all such steps have their turn.
STRIDES: Final = (1, 3, 7, 17, 37, 79, 157)

# Of the first steps some are slow. After so many timed ones, the stride is chosen, again and again.
LOOK_EVERY: Final = 16

# What the clock sees of its own work is the inside of its hooks. With calling them, and the slower way that
# torch takes through a module with hooks, steps of 1 ms took 73 µs longer where hooks measured 16 to 38.
AROUND: Final = 3.0


class PhaseSampling:
    """Takes what timing the phases of steps costs, and how long these steps take."""

    def __init__(self) -> None:
        self.stride = 1
        self._usual_ns = math.inf
        self._own_ns: list[int] = []
        self._step_ns: list[int] = []

    def untimed(self, step: int) -> int:
        """Return how many steps from this one on have no phases: the same on all ranks, if they are alike."""
        return -step % self.stride

    def add(self, own_ns: int, step_ns: int) -> float:
        """Add a timed step. own_ns: spent in our hooks. Return how long steps take, if known."""
        self._own_ns.append(own_ns)
        self._step_ns.append(step_ns)
        if len(self._own_ns) == LOOK_EVERY:
            self._usual_ns = median(self._step_ns)
            share = AROUND * median(self._own_ns) / max(self._usual_ns, 1)
            self.stride = next((stride for stride in STRIDES if share <= SHARE * stride), STRIDES[-1])
            self._own_ns.clear()
            self._step_ns.clear()
        return self._usual_ns


MOST: Final = 10_000
"""Collections that are remembered until somebody takes them."""


class GarbageTimes:
    """When collections began and ended, in ns of `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self._began_ns: deque[int] = deque(maxlen=MOST)
        self._ended_ns: deque[int] = deque(maxlen=MOST)
        # gc calls it with "start" or "stop", for getattr the name, and with a dict, for getattr the default.
        said = {"start": _noting(self._began_ns), "stop": _noting(self._ended_ns)}
        self._callback = partial(getattr, type("Said", (), said)())

    def start(self) -> None:
        """Begin to time."""
        gc.callbacks.append(self._callback)

    def stop(self) -> None:
        """Time no more."""
        gc.callbacks.remove(self._callback)

    def take(self) -> list[tuple[int, int]]:
        """Return begin and end of each collection that has ended since the last call."""
        taken, began_ns = [], self._began_ns
        for _ in range(len(self._ended_ns)):
            ended_ns = self._ended_ns.popleft()
            if began_ns and began_ns[0] <= ended_ns:  # else `start` was called during a collection
                taken.append((began_ns.popleft(), ended_ns))
        return taken


def _noting(into: deque[int]) -> property:
    """Return a property that appends the time whenever it is read."""
    read: Callable[[object], None] = partial(next, map(into.append, iter(time.perf_counter_ns, -1)))
    return property(read)


# A step of more phases is one of many small batches, whose rest counts as the last phase.
MOST_MARKS: Final = 512

# Steps whose events the GPU has not passed. With more, the host runs further ahead than any queue allows.
MOST_PENDING: Final = 64

_Marks = list[tuple[int, Any]]


class GpuMarks:
    """Marks of a training whose model is on a GPU.

    cuda: torch.cuda. rows: gets a row per step, in order. garbage: the phase that is host time.
    """

    def __init__(self, cuda: Any, rows: Any, phases: int, garbage: int) -> None:
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


MOST_VALUES: Final = 256
"""That are looked at: a loss and logits come first."""

MOST_LEVELS: Final = 8


def first_with_gradient(output: Any, torch: Any) -> Any:
    """Return autograd's node of the first tensor of an output through which gradients flow; None without one.

    Only tensors are looked at, and lists, tuples, dicts and dataclasses of them, as they are in memory: an
    iterator would lose its values, and a lazy mapping would make them. Inputs and parameters have no node.
    """
    # Else subclasses of tensors, and modes, would be asked for each attribute.
    with torch._C.DisableTorchFunction():
        level, left = [output], MOST_VALUES
        for _ in range(MOST_LEVELS):
            following = list[Any]()
            for value in level:
                if issubclass(type(value), torch.Tensor):
                    if value.requires_grad and value.grad_fn is not None:
                        return value.grad_fn
                else:
                    inside = list(islice(_values(value), left))
                    left -= len(inside)
                    following += inside
            level = following
        return None


def _values(value: Any) -> Iterable[Any]:
    """Return what is in a container. A subclass may have an `__iter__` of its own: it is not called."""
    kind = type(value)
    if issubclass(kind, tuple):
        return tuple.__iter__(value)
    if issubclass(kind, list):
        return list.__iter__(value)
    if issubclass(kind, dict):
        return dict.values(value)
    if any("__dataclass_fields__" in vars(one) for one in kind.__mro__):
        try:
            return dict.values(object.__getattribute__(value, "__dict__"))
        except AttributeError:  # one with slots
            return ()
    return ()
