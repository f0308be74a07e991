"""What a trace recorded: its steps, over which time, and which kinds of data."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match, occurs
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, Trace
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import BLOCKING_CALL, SUBMITTED_ONLY
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP, STEP
from tb_gpudiag.vocabulary.operators import MAKES_COMPRESSED
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, UNREAD_ACCELERATORS, Category

# A mark at an edge of the recording that has less than half of any other step's time, operators and calls is
# not a whole step. The last prof.step() opens a mark that the end of the recording closes: 18 us without a
# launch, after steps of 60 ms with 1,000 launches. Whole steps of a job differ by less.
WHOLE = levels.HALF

FEWEST_ITERATIONS = 3
"""A job with fewer in one step may use several optimizers in each."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps as the host ran them, in order of time, each name once. Shape (k,) each."""

    names: list[str]
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.names)

    def take(self, index: Int64 | slice) -> Steps:
        names = np.array(self.names, np.object_)[index].tolist()
        return Steps(names, self.start_ns[index], self.end_ns[index])

    def in_a_row(self) -> Steps:
        """Return the steps in order of start, each one until the next one starts."""
        found = self.take(np.argsort(self.start_ns, kind="stable"))
        return Steps(found.names, found.start_ns, np.r_[found.start_ns[1:], found.end_ns[-1:]])


def find_steps(events: Events) -> Steps:
    """Find the whole steps that are marked on the host. Their copies on the GPU (`gpu_user_annotation`) are
    not steps, nor is a mark inside of one of the same name. Marks of one name that follow each other are
    different steps: a schedule that begins again counts from 0 again. A lone mark around several iterations
    is several steps."""
    chosen = np.flatnonzero(
        (events.category == Category.USER_ANNOTATION) & match(events, STEP) & (events.duration_ns > 0)
    )
    chosen = chosen[np.lexsort((events.start_ns[chosen], events.name[chosen]))]
    again = np.r_[False, events.name[chosen[1:]] == events.name[chosen[:-1]]][: len(chosen)]
    inside = again & (events.start_ns[chosen] < np.r_[0, events.end_ns[chosen[:-1]]][: len(chosen)])
    chosen, again = chosen[~inside], again[~inside]
    at = np.arange(len(chosen))
    nth = at - np.maximum.accumulate(np.where(again, 0, at))
    named = zip(events.name[chosen].tolist(), nth.tolist(), strict=True)
    names = [f"{events.names[i]} ({n + 1})" if n else events.names[i] for i, n in named]
    return _whole(Steps(names, events.start_ns[chosen], events.end_ns[chosen]), events)


def _whole(steps: Steps, events: Events) -> Steps:
    """Return the steps without a cut one at either edge of the recording. A lone one is cut if nothing is
    called in it, and something outside of it."""
    steps = steps.take(np.argsort(steps.start_ns, kind="stable"))
    called = np.sort(events.start_ns[events.among(*CALL_CATEGORIES, Category.CPU_OP)])
    calls = np.searchsorted(called, steps.end_ns) - np.searchsorted(called, steps.start_ns)
    if len(steps) < 2:
        return _iterations(steps.take(np.flatnonzero((calls > 0) | (not len(called)))), events)
    length_ns = steps.end_ns - steps.start_ns
    whole = np.ones(len(steps), np.bool_)
    for edge in (0, len(steps) - 1):
        others = np.setdiff1d(
            np.arange(len(steps)) if len(steps) == 2 else np.arange(1, len(steps) - 1), edge
        )
        whole[edge] = (
            length_ns[edge] >= WHOLE * length_ns[others].min() or calls[edge] >= WHOLE * calls[others].min()
        )
    return steps.take(np.flatnonzero(whole))


def _iterations(steps: Steps, events: Events) -> Steps:
    """Return the iterations inside of a lone step, by its optimizer steps: from the end of one to the end of
    the next. Before the first one, the job may have made its model."""
    marks = np.flatnonzero(match(events, OPTIMIZER_STEP) & (events.category == Category.USER_ANNOTATION))
    after, before = steps.start_ns.max(initial=0), steps.end_ns.max(initial=0)
    marks = marks[(events.start_ns[marks] >= after) & (events.end_ns[marks] <= before)]
    own = marks[events.name[marks] == np.bincount(events.name[marks], minlength=1).argmax()]
    if len(own) <= FEWEST_ITERATIONS:
        return steps
    ends_ns = np.sort(events.end_ns[own])
    names = [f"{steps.names[0]}, iteration {number}" for number in range(2, len(own) + 1)]
    return Steps(names, ends_ns[:-1], ends_ns[1:])


@dataclass(frozen=True)
class Recorded:
    """Kinds of data that the trace contains, and so what can be known."""

    steps: bool
    operators: bool  # else only runtime calls show what the host did
    stacks: bool
    shapes: bool
    memory: bool
    flops: bool
    overhead: bool  # the GPU tracer's own work, such as allocating its buffers
    waits: bool = True  # calls in which the host waits for the GPU
    kept_inputs: bool = False  # the recorder keeps the memory of tensors whose shapes it recorded
    unread_accelerator: str = ""  # the kind of accelerator whose activity is in the trace and is not read


def find_recorded(trace: Trace, *, steps: bool) -> Recorded:
    """Find out which kinds of data the trace contains. steps: whether it has some, such as a server's."""
    events, metadata = trace.events, trace.metadata
    frames = (events.category == Category.PYTHON_FUNCTION) | (events.call_stack != NONE)
    shapes = metadata.record_shapes | bool((events.shapes != NONE).any())
    return Recorded(
        steps=steps,
        operators=bool((events.category == Category.CPU_OP).any()),
        stacks=bool(frames.any() or trace.memory.stacks),
        shapes=shapes,
        memory=len(trace.memory) > 0,
        flops=metadata.with_flops,
        overhead=bool((events.category == Category.OVERHEAD).any()),
        waits=not occurs(events, SUBMITTED_ONLY)
        or occurs(events, BLOCKING_CALL)
        or bool((events.category == Category.DRIVER).any()),
        kept_inputs=shapes & occurs(events, MAKES_COMPRESSED),
        unread_accelerator=next(
            (name for kind, name in UNREAD_ACCELERATORS.items() if (events.category == kind).any()), ""
        ),
    )


# A thread takes this many numbers at once, and leaves those that it does not need: in 243 public files, the
# numbers of two events that follow one another differ by 512 at most.
NUMBERS_AT_ONCE = 512


@dataclass(frozen=True)
class OperatorNumbers:
    """The numbers of operators and annotations. torch.profiler counts them: each one's number follows that
    of the one before it on its thread, but for one in a thousand.

    followed: share of the numbers that no gap on the same thread comes after.
    missing: numbers in gaps that are longer than what a thread takes at once.
    """

    known: int = 0
    first: int = 0
    last: int = 0
    followed: float = 1.0
    missing: int = 0


def operator_numbers(events: Events) -> OperatorNumbers:
    """Find which numbers are in the file."""
    named = np.flatnonzero(events.among(Category.CPU_OP, Category.USER_ANNOTATION) & (events.external_id > 0))
    numbers, first = np.unique(events.external_id[named], return_index=True)
    if len(numbers) < 2:
        return OperatorNumbers(len(numbers))
    steps = np.diff(numbers)
    left_out = (steps > 1) & (np.diff(events.thread[named[first]]) == 0)
    # A few numbers far away from the others are another counter's. Removed events leave many on both sides.
    edge = int(levels.NOTICEABLE * len(numbers))
    inner = steps[edge : len(steps) - edge]
    missing = int((inner - 1)[inner > NUMBERS_AT_ONCE].sum())
    followed = 1.0 - float(left_out.mean())
    return OperatorNumbers(len(numbers), int(numbers[0]), int(numbers[-1]), followed, missing)


def longest_silence(events: Events, recording: Window) -> Window:
    """Return the longest stretch of the recording in which no span of any thread or GPU begins or ends."""
    times = np.r_[recording.start_ns, events.start_ns, events.end_ns, recording.end_ns]
    times.sort(kind="stable")  # fast for values that are nearly in order
    times = times[recording.contains(times) | (times == recording.end_ns)]
    length_ns = np.diff(times, append=times[-1])
    longest = int(length_ns.argmax())
    return Window(int(times[longest]), int(times[longest] + length_ns[longest]))


def recording_window(trace: Trace) -> Window:
    """Return the time from the first event's start to the last one's end; (0, 0) without events.

    Only host and GPU activity counts. A memory snapshot may have few marks or none, so its memory events
    count as well.
    """
    events = trace.events
    known = ~events.among(Category.OTHER, *UNREAD_ACCELERATORS)
    start_ns, end_ns = events.start_ns[known], events.end_ns[known]
    if not known.any() or trace.kind != "trace":
        time_ns = trace.memory.time_ns
        start_ns, end_ns = np.r_[start_ns, time_ns], np.r_[end_ns, time_ns]
    if not len(start_ns):
        return Window(0, 0)
    return Window(int(start_ns.min()), int(end_ns.max()))
