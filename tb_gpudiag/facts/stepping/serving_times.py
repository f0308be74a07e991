"""What a GPU did in an inference server: in its engine steps, and in the gaps that the engine leaves."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, coverage
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, Ledger, TimeAccount
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.stepping.engine_steps import EngineSteps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import engines
from tb_gpudiag.vocabulary.engines import EngineMark, StepKind
from tb_gpudiag.vocabulary.frames import parse_frame
from tb_gpudiag.vocabulary.recorded import Category

IN_STEP = "in the step's mark"
BETWEEN_STEPS = "outside of the marks"
NO_BATCH = "no batch to run"
NOT_THE_HOST = "not the host: launch latency, graph nodes, queued work"
"""What idle time is listed under where no function of the engine is around."""

_OF_HOST = np.array(
    (
        *(*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH, Cause.SYNC, Cause.ALLOCATOR, Cause.COMPILE),
        *(Cause.INPUT, Cause.COLLECTIVE, Cause.INITIALIZATION, Cause.PROFILER),
    ),
    np.uint8,
)


@dataclass(frozen=True)
class EngineFunction:
    """Idle time of the GPU while the engine was in one of its functions.

    before_ns: in the gaps before steps. inside_ns: between the first and the last work of a step.
    """

    name: str
    before_ns: int
    inside_ns: int

    @property
    def idle_ns(self) -> int:
        return self.before_ns + self.inside_ns


@dataclass(frozen=True)
class KindTime:
    """The steps of one kind. requests, tokens: medians, NONE where a mark does not say.

    tokens_per_s: over the time of these steps without waits for requests; NONE likewise.
    busy: share of that time. gap_ns: median, NONE where no step's is known.
    """

    kind: StepKind
    time: StepTime
    steps: int
    requests: float
    tokens: float
    tokens_per_s: float
    busy: float
    gap_ns: float


@dataclass(frozen=True, eq=False)
class Serving:
    """The engine steps of the step window. Arrays have shape (k,).

    marked, marks, event: as in EngineSteps. account: of the device, step by step. gap_ns: from the end of all
    work launched before a step to the start of the first work that it launched, on the device; NONE if the
    recording has no work before it.
    """

    marked: bool
    marks: list[EngineMark]
    event: Int64
    account: TimeAccount
    gap_ns: Int64
    functions: list[EngineFunction]  # most idle time first

    @property
    def length_ns(self) -> Int64:
        return self.account.end_ns - self.account.start_ns

    @property
    def busy_ns(self) -> Int64:
        found: Int64 = self.length_ns - self.account.idle_ns.sum(axis=1)
        return found

    @property
    def waiting_ns(self) -> Int64:
        """How long the engine had nothing to run in each."""
        found: Int64 = self.account.idle_ns[:, Cause.REQUESTS]
        return found

    def kinds(self) -> list[KindTime]:
        """Return the kinds that occur, in the order of StepKind."""
        kind = np.array([mark.kind for mark in self.marks], np.int64)
        return [self._of_kind(one, kind == one) for one in StepKind if (kind == one).any()]

    def _of_kind(self, kind: StepKind, own: Bool) -> KindTime:
        numbers = np.array([(mark.requests, mark.tokens) for mark in self.marks], np.int64)[own]
        requests, tokens = numbers.T
        worked_ns = int((self.length_ns - self.waiting_ns)[own].sum())
        known = self.gap_ns[own & (self.gap_ns != NONE)]
        rate = 1e9 * tokens.sum() / worked_ns if worked_ns and (tokens > 0).all() else NONE
        return KindTime(
            kind=kind,
            time=step_time(self.length_ns[own]),
            steps=int(own.sum()),
            requests=_median(requests),
            tokens=_median(tokens),
            tokens_per_s=float(rate),
            busy=float(self.busy_ns[own].sum()) / worked_ns if worked_ns else 0.0,
            gap_ns=float(np.median(known)) if len(known) else float(NONE),
        )


def _median(values: Int64) -> float:
    return float(np.median(values)) if (values != NONE).all() else float(NONE)


def find_serving(
    engine: EngineSteps, chosen: Int64, borders_ns: Int64, host: Host, work: Work, time: GpuTime
) -> Serving | None:
    """Measure engine steps on a device. chosen: which of them, in a row. borders_ns: theirs, shape (k + 1,).
    None without steps."""
    if not len(chosen) or len(borders_ns) != len(chosen) + 1:
        return None
    steps = engine.steps.take(chosen)
    account = time.account(steps.names, borders_ns[:-1], borders_ns[1:])
    gaps = _gaps(steps.start_ns, steps.end_ns, work, time.device)
    gap_ns = np.where(gaps.start == NONE, NONE, gaps.end - gaps.start)
    functions = _functions(host, time.ledger, borders_ns, gaps)
    marks = [engine.marks[i] for i in chosen]
    return Serving(engine.marked, marks, engine.event[chosen], account, gap_ns, functions)


def _gaps(start_ns: Int64, end_ns: Int64, work: Work, device: int) -> Intervals:
    """Return from when to when the device waits for each step's first work, shape (k,); NONE without earlier
    work, or without any of the step's own."""
    own = work.by_launch[work.device[work.by_launch] == device]
    launched = work.launch_start_ns[own]
    done = np.r_[np.int64(NONE), np.maximum.accumulate(work.end_ns[own])][np.searchsorted(launched, start_ns)]
    first, after = np.searchsorted(launched, start_ns), np.searchsorted(launched, end_ns)
    begins = np.r_[np.minimum.accumulate(work.start_ns[own][::-1])[::-1], np.int64(NONE)][first]
    known = (done != NONE) & (after > first)
    return Intervals(np.where(known, done, NONE), np.where(known, np.maximum(begins, done), NONE))


def _functions(host: Host, ledger: Ledger, borders_ns: Int64, gaps: Intervals) -> list[EngineFunction]:
    """Add up the device's idle time in the steps by the engine's function around what the host did."""
    name, names = _named(host, ledger)
    start = np.clip(ledger.start_ns, borders_ns[0], borders_ns[-1])
    end = np.clip(ledger.end_ns, borders_ns[0], borders_ns[-1])
    known = gaps.start != NONE
    before = coverage(Intervals(gaps.start[known], gaps.end[known]), start, end)
    total = summed(name, end - start, len(names))
    in_gaps = summed(name, before, len(names))
    found = [
        EngineFunction(names[i], int(in_gaps[i]), int(total[i] - in_gaps[i]))
        for i in np.flatnonzero(total).tolist()
    ]
    by_name: dict[str, EngineFunction] = {}
    for one in found:  # frames of one function that begin in other lines have other names
        other = by_name.get(one.name, EngineFunction(one.name, 0, 0))
        by_name[one.name] = EngineFunction(
            one.name, one.before_ns + other.before_ns, one.inside_ns + other.inside_ns
        )
    return sorted(by_name.values(), key=lambda one: -one.idle_ns)


def _named(host: Host, ledger: Ledger) -> tuple[Int64, list[str]]:
    """Return the engine's function of each segment of the ledger, as an index into a list of names."""
    events = host.events
    mark = match(events, engines.STEP_MARK) & (events.category == Category.USER_ANNOTATION)
    function = match(events, engines.ENGINE_FRAME) & (events.category == Category.PYTHON_FUNCTION)
    function |= match(events, engines.ENGINE_RANGE) & (events.category == Category.USER_ANNOTATION)
    nearest = host.tree.nearest_of((mark | function) & (host.tree.depth >= 0))
    others = [BETWEEN_STEPS, IN_STEP, NO_BATCH, NOT_THE_HOST]
    around = np.where(ledger.event == NONE, NONE, nearest[ledger.event])
    used = np.unique(events.name[around[around != NONE]])
    number = np.full(len(events.names), NONE, np.int64)
    number[used] = np.arange(len(used)) + len(others)
    found = np.where(around == NONE, 0, number[events.name[around]])
    found[(around != NONE) & mark[around]] = 1
    found[~np.isin(ledger.cause, _OF_HOST)] = 3
    found[ledger.cause == Cause.REQUESTS] = 2
    return found, [*others, *(_function_name(events, int(i)) for i in used)]


def _function_name(events: Events, name: int) -> str:
    frame = parse_frame(events.names[name])
    if frame is None:
        return events.names[name]
    at = max(0, *(frame.file.rfind(package) for package in engines.PACKAGES))
    return f"{frame.function} ({frame.file[at:]})"
