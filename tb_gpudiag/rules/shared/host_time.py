"""The host's time in one finding: what it consists of, and in which of a rule's cases it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, marked
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.launch_advice import LaunchAdvice, launch_advice
from tb_gpudiag.rules.shared.lost_time import Lost, unseen
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.frames import called


@dataclass(frozen=True, eq=False)
class HostPart:
    """The host's time in one finding, and what it consists of, as shares of it.

    chosen: mask of segments, shape (s,).
    """

    facts: Facts
    lost: Lost
    chosen: Bool

    def share(self, part: Bool) -> float:
        """How much of the time this mask of segments has."""
        return self.lost.total_ns(self.chosen & part) / max(1, self.cost_ns)

    @cached_property
    def cost_ns(self) -> int:
        return self.lost.total_ns(self.chosen)

    @cached_property
    def unseen(self) -> float:
        return self.share(unseen(self.lost, self.facts))

    @cached_property
    def stalled(self) -> float:
        """In operators that usually take no time, as where the process lacks a core."""
        stalls = self.facts.host_work.interruptions
        return stalls.total_ns / max(1, self.cost_ns) if stalls.several else 0.0

    @cached_property
    def views(self) -> Bool:
        """Mask of the segments in views that take long."""
        return self.chosen & marked(self.facts.host_work.slow_views, self.lost.event)

    @cached_property
    def updating(self) -> float:
        return self.share(marked(self.facts.host_work.optimizer_steps, self.lost.event))

    @cached_property
    def advice(self) -> LaunchAdvice:
        return launch_advice(self.facts, self.lost, self.chosen)

    @cached_property
    def launching(self) -> float:
        """Between short kernels, launching less removes Python as well; elsewhere only if code is compiled
        or a server's. It does not shorten other long host work."""
        fits = self.advice.mostly_compiled or self.facts.job.server is not None
        return 1.0 if fits else self.share(self.lost.in_short_dry_gaps)

    def in_operators(self, each_ns: int) -> float:
        """In operators, if each that begins in the time takes this long; more than all of it if they are
        shorter."""
        begun = self.facts.host_work.recorder_cost.operators(self.lost.stretches(self.chosen))
        return begun * each_ns / max(1, self.cost_ns)

    @cached_property
    def python(self) -> Bool:
        """Mask of the segments in Python between operators."""
        return self.chosen & self.lost.of(*BETWEEN_CALLS)

    @cached_property
    def at_a_line(self) -> float:
        """In Python whose line is known."""
        return self.share(self.python & (self._of(self.facts.host.place) != NONE))

    def at_one_line(self, turns: int) -> float:
        """In Python at the line that has most of it, if a step comes there so often."""
        own = self._most(self._of(self.facts.host.place))
        return self.share(own) if self._turns(own) >= turns else 0.0

    @cached_property
    def call(self) -> tuple[str, float]:
        """The call of a library, or of Python itself, that most of it is in, and how much that is."""
        host, event = self.facts.host, self._of(self.facts.host.library_call)
        own = self._most(host.names(event))
        return called(host.name(next(iter(event[own].tolist()), NONE))), self.share(own)

    def _of(self, column: Int32) -> Int64:
        """The value of each segment in a column of events, or NONE."""
        return np.where(self.lost.event == NONE, NONE, column[self.lost.event]).astype(np.int64)

    def _most(self, value: Int64) -> Bool:
        """Mask of the segments in Python with the value that has most of it; none if no value is known."""
        known = self.python & (value != NONE)
        values, at = np.unique(value[known], return_inverse=True)
        ns = np.bincount(at, weights=self.lost.length_ns[known], minlength=1)
        return known & (value == np.append(values, NONE)[ns.argmax()])

    def _turns(self, own: Bool) -> float:
        """Count the stretches of a step in which this is done: as many equal ones as weigh the same."""
        stretches = self.lost.stretches(own)
        length_ns = (stretches.end - stretches.start).astype(np.float64)
        most = float(length_ns.sum() ** 2 / max(1.0, float((length_ns**2).sum())))
        return most / max(1, len(self.facts.steps))


class Case(NamedTuple):
    """What host time is, and what to do about it.

    of: how much of the time it is, 0 to 1. fix: its name on the page; "": as the job launches now. subject:
    what keeps the GPU idle; "": what the time consists of. says: "{call}" is the call that most is in.
    removes: what of the host's time the fix removes, of the time and the host's own work.
    """

    of: Callable[[HostPart], float]
    fix: str
    subject: str = ""
    says: str = ""
    removes: Callable[[HostPart, Intervals], Intervals] = lambda _, own: own


def case_of(time: HostPart, cases: Sequence[Case]) -> Case:
    """Return the first case that is half of the time; one of them is."""
    return next(case for case in cases if case.of(time) >= levels.HALF)
