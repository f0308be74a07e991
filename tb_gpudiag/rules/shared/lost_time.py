"""Lost time: select stretches of idle time by cause, and find the code they belong to; what a step window
consists of, for the verdict: work, and idle time by what limits it; and from which share on a part limits a
job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers, UInt8, summed
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans, Trigger
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, complement, expand, overlapping, union
from tb_gpudiag.facts.core.ledger import TimeAccount
from tb_gpudiag.facts.core.places import by_place
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Place, Range, Removable, place_at
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Claimed
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import share

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts

# A page shows a handful. Longer lists go unread.
MOST_PLACES = 5
MOST_RANGES = 20

NO_DEVICE = -1
"""Device id of the main host thread's time, used when no GPU was recorded."""

ISSUING = (Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY)
"""Causes on the way to a launch: from entering its operator to the start of the kernel."""

_ON_CPU = np.array((HostTask.MAKING, HostTask.COMPUTING))
"""Tasks in operators that launch nothing."""

# From the end of one operator to the kernel of the next takes 5 to 200 us. In a gap over a millisecond the
# host did something other than launching, and other rules cover that.
LONGEST_GAP_NS = 1_000_000

# Between two operators Python takes microseconds. Without stacks, a stretch of a millisecond without any
# operator or call may be Python, a sleep, a lock or another library.
LONG_STRETCH_NS = 1_000_000

# If more than half of what the host did is invisible, the trace does not show what it did.
MOSTLY_UNSEEN = levels.HALF


class Where(TypedDict):
    """What a finding costs, where that time is, and what of it is claimed: fields of Finding."""

    cost_ns: int
    places: list[Place]
    ranges: list[Range]
    claims: dict[int, Intervals]


@dataclass(frozen=True, eq=False)
class Lost:
    """Lost time in the step window: idle segments of the busiest device, or the main thread's time if there
    is no GPU.

    Columns have shape (s,), are sorted by time and clipped to the window. gap_ns and trigger are the length
    of the gap that contains the segment, and what began it.
    """

    device: int
    window_ns: int
    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    event: Int64  # the host event the time is attributed to, or NONE
    drained_ns: Int64
    gap: Int64
    gap_ns: Int64
    trigger: UInt8
    launch: Int64  # launch of the work that ended the gap, or NONE
    task: Int64  # HostTask, or NONE

    @property
    def making(self) -> Bool:
        """Mask of the segments in which the host makes a tensor for the GPU: no launch is on its way."""
        return self.task == HostTask.MAKING

    @property
    def evaluating(self) -> Bool:
        """Mask of the main thread's time in an evaluation beside the training, which GD511 is about."""
        return (self.task == HostTask.EVALUATING) & (self.device == NO_DEVICE)

    @property
    def length_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def of(self, *causes: Cause) -> Bool:
        """Mask of the segments with one of these causes, shape (s,)."""
        return np.isin(self.cause, np.array(causes, np.uint8))

    @property
    def in_short_dry_gaps(self) -> Bool:
        """Mask of the segments in short launch gaps, shape (s,): the queue ran dry, and the next launch
        arrived within a millisecond."""
        dry = np.isin(self.trigger, np.array([Trigger.STARVED, Trigger.DRAINED], np.uint8))
        return dry & (self.gap_ns <= LONGEST_GAP_NS)

    @property
    def issuing(self) -> Bool:
        """Mask of the segments on the way to a launch in short launch gaps, shape (s,)."""
        return self.of(*ISSUING) & self.in_short_dry_gaps & ~np.isin(self.task, _ON_CPU)

    def total_ns(self, chosen: Bool) -> int:
        return int(self.length_ns[chosen].sum())

    def share(self, nanoseconds: int) -> float:
        """Share of the step window, 0 to 1; 0 if the window is empty."""
        return nanoseconds / max(1, self.window_ns)

    def sentence(self, subject: str, nanoseconds: int) -> str:
        """Say for how long `subject`, such as "data loading", keeps the GPU idle; without a GPU, how long it
        takes."""
        cost_share = share(nanoseconds, self.window_ns)
        if self.device == NO_DEVICE:
            return f"{subject} takes {cost_share} of the main thread's time"
        return f"{subject} keeps the GPU idle {cost_share} of the time"

    def claims(self, chosen: Bool) -> dict[int, Intervals]:
        """Intervals of the chosen segments, by device. Host time is never claimed."""
        if self.device == NO_DEVICE:
            return {}
        return {self.device: self.stretches(chosen)}

    def where(
        self, host: Host, chosen: Bool, event: Int64 | None = None, *, by_operator: bool = False
    ) -> Where:
        """Say where the chosen segments are. event: that each is in, shape (s,); what it is attributed to by
        default."""
        at = (self.event if event is None else event)[chosen]
        return Where(
            cost_ns=self.total_ns(chosen),
            places=places(host, at, self.length_ns[chosen], by_operator=by_operator),
            ranges=self.ranges(chosen),
            claims=self.claims(chosen),
        )

    def stretches(self, chosen: Bool) -> Intervals:
        """The chosen segments, with adjacent ones merged."""
        return union(self.start_ns[chosen], self.end_ns[chosen])

    def ranges(self, chosen: Bool) -> list[Range]:
        """The longest of the chosen stretches, longest first, for the timeline."""
        return longest(self.stretches(chosen), self.device)


def longest(stretches: Intervals, device: int) -> list[Range]:
    """The longest stretches as timeline ranges, longest first."""
    order = np.argsort(stretches.start - stretches.end, kind="stable")[:MOST_RANGES]
    return [Range(int(stretches.start[i]), int(stretches.end[i]), device) for i in order]


def lost_time(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Lost:
    """Return the busiest device's idle time in the step window, minus claimed time; without a device, the
    main thread's whole time."""
    window, device = facts.window, facts.device
    if device is None:
        spans = facts.main_thread_spans
        zero, none = np.zeros_like(spans.start_ns), np.full_like(spans.start_ns, NONE)
        return Lost(
            device=NO_DEVICE,
            window_ns=window.duration_ns,
            start_ns=spans.start_ns,
            end_ns=spans.end_ns,
            cause=spans.cause,
            event=spans.event.astype(np.int64),
            drained_ns=zero,
            gap=zero,
            gap_ns=zero + window.duration_ns,
            trigger=np.zeros_like(spans.cause),
            launch=none,
            task=facts.host_work.task_of(spans),
        )
    ledger, gaps = device.ledger, device.ledger.gaps
    free = complement(claimed.get(device.id, EMPTY), window.start_ns, window.end_ns)
    segment, stretch = expand(*overlapping(free, ledger.start_ns, ledger.end_ns))
    start = np.maximum(ledger.start_ns[segment], free.start[stretch])
    end = np.minimum(ledger.end_ns[segment], free.end[stretch])
    drained_until = (ledger.start_ns + ledger.drained_ns)[segment]
    gap = ledger.gap[segment]
    return Lost(
        device=device.id,
        window_ns=window.duration_ns,
        start_ns=start,
        end_ns=end,
        cause=ledger.cause[segment],
        event=ledger.event[segment],
        drained_ns=np.clip(drained_until - start, 0, end - start),
        gap=gap,
        gap_ns=(gaps.end_ns - gaps.start_ns)[gap],
        trigger=gaps.trigger[gap],
        launch=gaps.launch[gap],
        task=facts.host_work.tasks.of(ledger.event[segment]),
    )


@dataclass(frozen=True, eq=False)
class LostPart:
    """Lost time that a rule is about. chosen: mask of it, shape (s,)."""

    facts: Facts
    lost: Lost
    chosen: Bool

    @property
    def cost_ns(self) -> int:
        return self.lost.total_ns(self.chosen)

    @property
    def share(self) -> float:
        return self.lost.share(self.cost_ns)

    @property
    def of_window(self) -> str:
        return share(self.cost_ns, self.lost.window_ns)


def of_lost_time(choose: Callable[[Lost], Bool]) -> Callable[[Facts, Claimed], LostPart]:
    """Return the lost time that a rule chooses, for speaks_from."""

    def part(facts: Facts, claimed: Claimed) -> LostPart:
        lost = lost_time(facts, claimed)
        return LostPart(facts, lost, choose(lost))

    return part


def unseen(lost: Lost, facts: Facts) -> Bool:
    """Mask of lost time between calls that may be anything on the host, shape (s,).

    With stacks, nothing is unseen. Without operators, everything between two runtime calls is.
    """
    unlocated = lost.of(*BETWEEN_CALLS) & ~located(lost, facts.host)
    if facts.recorded.stacks:
        return unlocated & False
    return unlocated & (lost.length_ns >= LONG_STRETCH_NS) if facts.recorded.operators else unlocated


def own_range(lost: Lost, host: Host, chosen: Bool) -> str:
    """Return the `record_function` of the user's that has most of the chosen time, or "".

    chosen: mask of segments, shape (s,)."""
    known = np.flatnonzero(chosen & (lost.event != NONE))
    ranges = host.range[lost.event[known]]
    inside = ranges != NONE
    _, first, own = np.unique(host.names(ranges[inside]), return_index=True, return_inverse=True)
    each_ns = np.bincount(own, weights=lost.length_ns[known][inside], minlength=1)
    most = int(each_ns.argmax())
    is_most = len(first) > 0 and each_ns[most] >= MOSTLY_UNSEEN * lost.total_ns(chosen)
    return host.name(int(ranges[inside][first[most]])) if is_most else ""


def located(lost: Lost, host: Host) -> Bool:
    """Mask of lost time for which the trace has a line or an operator, shape (s,)."""
    found: Bool = lost.event != NONE
    event = lost.event[found]
    found[found] = (host.place[event] != NONE) | (host.operator[event] != NONE)
    return found


def host_time(main_thread: CauseSpans, *causes: Cause, at_least_ns: int = 0) -> Intervals:
    """Return the main thread's time with these causes, in spans of at least `at_least_ns`, whether or not the
    GPU was busy meanwhile."""
    some = np.isin(main_thread.cause, np.array(causes, np.uint8))
    some &= main_thread.end_ns - main_thread.start_ns >= at_least_ns
    return union(main_thread.start_ns[some], main_thread.end_ns[some])


def removing(host: Intervals) -> Removable:
    """A fix that removes this host time."""
    return Removable(Removal(host))


def places(host: Host, event: Numbers, weight_ns: Int64, *, by_operator: bool = False) -> list[Place]:
    """Map host events to places in the user's code, sorted by time, most first."""
    found = by_place(host, event, weight_ns, by_operator=by_operator, most=MOST_PLACES)
    return [
        place_at(
            one.frame,
            operator=one.operator,
            time_ns=one.time_ns,
            module=one.module,
            range=one.range,
            caller=one.caller,
        )
        for one in found
    ]


_ON_HOST = (*BETWEEN_CALLS, *ISSUING)

UNEXPLAINED = (Cause.QUEUED, Cause.UNLINKED, Cause.UNRECORDED)
"""Idle time that no change of the job can be shown to remove."""


@dataclass(frozen=True)
class WindowParts:
    """One device's step window in ns. The fields add up to the window.

    Idle time while the queue fills up again after a synchronization counts as `refilling_ns`, whatever the
    host did meanwhile: without the synchronization the queue would not have run dry.
    """

    computing_ns: int
    copying_ns: int  # exposed
    communicating_ns: int  # exposed
    in_collectives_ns: int  # idle while the host is inside a collective call
    input_ns: int
    synchronizing_ns: int
    refilling_ns: int
    allocator_ns: int
    between_nodes_ns: int  # of CUDA graphs
    launching_ns: int  # from an operator to its kernel, in short gaps between kernels
    operators_ns: int  # the same in long gaps: operators that take long on the host
    python_ns: int
    waiting_ns: int  # the host sat in a call that waits
    compiling_ns: int
    requests_ns: int  # an inference engine had nothing to run
    initialization_ns: int
    profiler_ns: int
    unexplained_ns: int
    lost_ns: int  # kernels may have run that were launched and not recorded

    @property
    def window_ns(self) -> int:
        return sum(vars(self).values())

    @property
    def seen_ns(self) -> int:
        """What the trace shows of the job: the window without the time of lost kernels and the profiler's."""
        return self.window_ns - self.lost_ns - self.profiler_ns

    @property
    def busy_ns(self) -> int:
        return self.computing_ns + self.copying_ns + self.communicating_ns

    @property
    def by_limiter(self) -> dict[str, int]:
        """What each limiter other than computing would account for. "host" is told apart later; "nodes" are
        the gaps between graph nodes."""
        return {
            "input": self.input_ns,
            "sync": self.synchronizing_ns + self.refilling_ns,
            "copy": self.copying_ns,
            "communication": self.communicating_ns + self.in_collectives_ns,
            "memory": self.allocator_ns,
            "nodes": self.between_nodes_ns,
            "host": sum(self.host.values()),
            "waiting": self.waiting_ns,
            "requests": self.requests_ns,
            "initialization": self.initialization_ns,
            "unknown": self.unexplained_ns,
        }

    @property
    def host(self) -> dict[str, int]:
        """What the host does while the GPU waits, by limiter."""
        return {
            "launch": self.launching_ns,
            "python": self.python_ns + self.operators_ns,
            "compile": self.compiling_ns,
        }


def split_window(account: TimeAccount, lost: Lost, unrecorded_ns: int = 0) -> WindowParts:
    """Split the step window. account: `DeviceFacts.window_account`; lost: its idle time; unrecorded_ns: how
    much of that lost kernels may have taken.

    Making tensors on the host counts as data loading: that is what they stand for.
    """
    refilling = summed(lost.cause, lost.drained_ns, len(Cause))
    idle = account.idle_ns[0] - refilling

    own_ns = lost.length_ns - lost.drained_ns
    making = lost.of(*_ON_HOST) & lost.making
    made = np.bincount(lost.cause[making], weights=own_ns[making], minlength=len(Cause)).astype(np.int64)
    long = lost.of(*ISSUING) & ~lost.issuing & ~making

    def total(*causes: Cause) -> int:
        return int(sum(idle[cause] - made[cause] for cause in causes))

    return WindowParts(
        computing_ns=int(account.computing_ns[0]),
        copying_ns=int(account.copying_ns[0]),
        communicating_ns=int(account.communicating_ns[0]),
        in_collectives_ns=total(Cause.COLLECTIVE),
        input_ns=total(Cause.INPUT) + int(made.sum()),
        synchronizing_ns=total(Cause.SYNC),
        refilling_ns=int(refilling.sum()),
        allocator_ns=total(Cause.ALLOCATOR),
        between_nodes_ns=total(Cause.GRAPH),
        launching_ns=total(*ISSUING) - int(own_ns[long].sum()),
        operators_ns=int(own_ns[long].sum()),
        python_ns=total(Cause.PYTHON, Cause.HOST),
        waiting_ns=total(Cause.WAITING),
        compiling_ns=total(Cause.COMPILE),
        requests_ns=total(Cause.REQUESTS),
        initialization_ns=total(Cause.INITIALIZATION),
        profiler_ns=total(Cause.PROFILER),
        unexplained_ns=total(*UNEXPLAINED) - unrecorded_ns,
        lost_ns=unrecorded_ns,
    )


# A GPU that computes this much of the time is limited by computing: everything else together is worth a
# quarter of the step at most.
COMPUTE_SHARE = levels.MOST

# So is one that computes three times as long as the largest other part takes: without that part, it would
# compute for three quarters of the time at least.
COMPUTE_LEAD = 3.0

# The limiter must stand out. If the second part is nearly as large, fixing one only uncovers the other.
CLEAR_LEAD = 1.5

# A smaller part is not worth calling a limiter: removing it would hardly be noticed.
LIMITER_SHARE = levels.SIZEABLE


def computing_limits(computing_ns: float, most_ns: float, whole_ns: float) -> bool:
    """Whether computing limits a job. most_ns: its largest other part."""
    return computing_ns >= COMPUTE_SHARE * whole_ns or (
        computing_ns >= COMPUTE_LEAD * most_ns and 2 * computing_ns >= whole_ns
    )
