"""Engine steps: the runs of the model in an inference server, one for each batch of requests."""

from __future__ import annotations

import json

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls, engines
from tb_gpudiag.vocabulary.engines import UNKNOWN_STEP, EngineMark, StepKind
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category


@dataclass(frozen=True, eq=False)
class EngineSteps:
    """The steps as the host ran them, each one until the next one starts, and what their marks say.

    event: the mark of each, or else the function that runs the model. Shape (k,).
    marked: whether the server marks them.
    """

    steps: Steps
    marks: list[EngineMark]
    event: Int64
    marked: bool

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def kind(self) -> Int64:
        """StepKind of each, shape (k,)."""
        return np.array([mark.kind for mark in self.marks], np.int64)

    @property
    def requests(self) -> Int64:
        """Requests in each, NONE where the mark does not say, shape (k,)."""
        return np.array([mark.requests for mark in self.marks], np.int64)

    @property
    def tokens(self) -> Int64:
        """Tokens that the model computed in each, NONE where the mark does not say, shape (k,)."""
        return np.array([mark.tokens for mark in self.marks], np.int64)

    @property
    def size(self) -> Int64:
        """Size of each batch as servers capture graphs for it, NONE where not known, shape (k,): its tokens,
        or its requests."""
        return np.where(self.tokens == NONE, self.requests, self.tokens)

    def lengths(self, at_ns: Int64) -> tuple[Int64, list[str]]:
        """Return the step that runs at each time, or NONE, and what the mark of each says of attention, as
        operator_cost takes it."""
        said = [json.dumps([str(mark.pairs), str(mark.keys)]) for mark in self.marks]
        return np.searchsorted(self.steps.start_ns, at_ns, side="right") - 1, said


NO_ENGINE = EngineSteps(
    Steps([], np.zeros(0, np.int64), np.zeros(0, np.int64)), [], np.zeros(0, np.int64), False
)


def find_engine_steps(events: Events) -> EngineSteps:
    """Find the steps of the thread with most of them; NO_ENGINE if the trace shows none."""
    marked = True
    found = _marks(events)
    if not len(found):
        marked, found = False, _outermost(events, _on_one_thread(events, _frames(events)))
    if not len(found):
        return NO_ENGINE
    marks = _read(events, found) if marked else _by_function(events, found)
    start, end = events.start_ns[found], events.end_ns[found]
    end[-1] = _last_end(events, int(found[-1]), np.diff(start))
    steps = Steps([mark.kind.label for mark in marks], start, end).in_a_row()
    kept = _with_requests(marks)
    names = [f"{label} {number}" for number, label in enumerate(steps.names[kept], start=1)]
    return EngineSteps(
        Steps(names, steps.start_ns[kept], steps.end_ns[kept]), marks[kept], found[kept], marked
    )


def _with_requests(marks: list[EngineMark]) -> slice:
    """The steps from the first one with requests to the last one. An engine that has answered goes on for a
    step or two without any, which take no time and would count as steps as others do."""
    busy = [number for number, mark in enumerate(marks) if mark.kind is not StepKind.IDLE]
    return slice(busy[0], busy[-1] + 1) if busy else slice(None)


def _marks(events: Events) -> Int64:
    """Find the marks of steps, in order of time."""
    found = events.where(Category.USER_ANNOTATION)
    found = found[match_some(events, engines.STEP_MARK, found) & (events.duration_ns[found] > 0)]
    found = _on_one_thread(events, found)
    if match_some(events, engines.VERIFIES, found).any():
        found = found[~match_some(events, engines.DRAFTS, found)]
    return _one_per_run(events, _outermost(events, found))


def _frames(events: Events) -> Int64:
    found = events.where(Category.PYTHON_FUNCTION)
    return found[match_some(events, engines.STEP_FRAME, found) & (events.duration_ns[found] > 0)]


def _on_one_thread(events: Events, found: Int64) -> Int64:
    """Return those on the thread with most of them."""
    if not len(found):
        return found
    return found[events.thread[found] == np.bincount(events.thread[found]).argmax()]


def _outermost(events: Events, found: Int64) -> Int64:
    """Return those that do not begin within an earlier one. found: of one thread, in order of start."""
    until = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(events.end_ns[found])]
    return found[events.start_ns[found] >= until[: len(found)]]


def _one_per_run(events: Events, found: Int64) -> Int64:
    """Return the first mark of each run of a batch: a model that drafts tokens has marks in it, too."""
    runs = np.flatnonzero(match(events, engines.RUN_BATCH))
    runs = _outermost(events, runs[np.isin(events.thread[runs], events.thread[found[:1]])])
    if not len(runs):
        return found
    run = np.searchsorted(events.start_ns[runs], events.start_ns[found], side="right") - 1
    inside = (run >= 0) & (events.start_ns[found] < events.end_ns[runs[np.maximum(run, 0)]])
    return found[~inside | np.r_[True, run[1:] != run[:-1]]]


def _read(events: Events, found: Int64) -> list[EngineMark]:
    names, member = np.unique(events.name[found], return_inverse=True)
    read = [engines.read_mark(events.names[i]) or UNKNOWN_STEP for i in names]
    return [read[i] for i in member]


def _by_function(events: Events, found: Int64) -> list[EngineMark]:
    """Tell the kinds of steps without marks by the functions inside of or around them, and by what they
    launch: a server that has answered runs the model's function once more, with nothing to compute."""
    kind = np.full(len(found), StepKind.FORWARD, np.int64)
    frames = events.where(Category.PYTHON_FUNCTION)
    frames = frames[events.thread[frames] == events.thread[found[0]]]
    for one, pattern in reversed(engines.KIND_FRAMES):
        some = frames[match_some(events, pattern, frames)]
        kind[_overlaps(events, found, some)] = one
    calls = events.where(*CALL_CATEGORIES)
    launches = calls[match_some(events, api_calls.LAUNCH_CALL, calls)]
    works = _overlaps(events, found, launches[events.thread[launches] == events.thread[found[0]]])
    if works.any():
        kind[~works] = StepKind.IDLE
    return [EngineMark(StepKind(one)) for one in kind.tolist()]


def _overlaps(events: Events, found: Int64, others: Int64) -> Bool:
    """Mask of the spans that overlap any of the others, of one thread each."""
    ends = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(events.end_ns[others])]
    begun = np.searchsorted(events.start_ns[others], events.end_ns[found], side="left")
    overlap: Bool = ends[begun] > events.start_ns[found]
    return overlap


def _last_end(events: Events, last: int, intervals: Int64) -> int:
    """Return when the last step ends: a server samples and copies the tokens after its mark. With other
    steps, it is not longer than they are."""
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[
        (events.thread[calls] == events.thread[last]) & (events.start_ns[calls] >= events.end_ns[last])
    ]
    calls = calls[match_some(events, api_calls.LAUNCH_CALL, calls)]
    end = int(events.end_ns[last])
    if len(intervals):
        calls = calls[events.end_ns[calls] <= events.start_ns[last] + int(intervals.max())]
    return max(end, int(events.end_ns[calls].max(initial=end)))
