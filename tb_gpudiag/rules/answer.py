"""What a rule may answer: a Finding (or several), Clear (checked, no problem found) or CannotTell (the trace
lacks what the rule needs). Times are whole ns from the trace's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.wording.quantity import Quantity, duration, share_of

if TYPE_CHECKING:
    from tb_gpudiag.facts.replay.replay import Removal


class Severity(IntEnum):
    """Numbered as in report.proto."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    def when(self, holds: object) -> Severity | None:
        """This severity where that holds; None, which leaves it to the rule, where it does not."""
        return self if holds else None


@dataclass(frozen=True)
class Evidence:
    """One measured figure. `value` is what comparisons use; `details` follow it in the text."""

    label: str
    value: Quantity | str
    details: tuple[Quantity | str, ...] = ()

    @classmethod
    def some(cls, label: str, value: Quantity | str, *details: Quantity | str) -> list[Evidence]:
        """The figure; none if it is 0 or empty."""
        amount = value.value if isinstance(value, Quantity) else value
        return [cls(label, value, details)] if amount else []

    @classmethod
    def of_window(cls, label: str, nanoseconds: int, window_ns: int) -> Evidence:
        """A duration, followed by its share of the step window."""
        return cls(label, duration(nanoseconds), (share_of(nanoseconds, window_ns, "of the step window"),))

    @classmethod
    def of_cost(cls, label: str, nanoseconds: int, cost_ns: int) -> Evidence:
        """A duration, followed by its share of the finding's cost."""
        return cls(label, duration(nanoseconds), (share_of(nanoseconds, cost_ns, "of this time"),))

    @property
    def text(self) -> str:
        """Value and details, as users read them."""
        return ", ".join(str(part) for part in (self.value, *self.details))


@dataclass(frozen=True)
class Place:
    """A place in the user's code. Fields that the trace does not give stay empty."""

    file: str = ""
    line: int = 0
    function: str = ""
    operator: str = ""
    time_ns: int = 0  # how much of the finding's cost is here
    bytes: int = 0  # the same for a finding about memory
    line_kind: LineKind = LineKind.UNKNOWN
    module: str = ""  # of nn.Module
    range: str = ""  # of record_function
    caller: Frame | None = None  # the nearest frame outside of installed packages


def place_at(frame: Frame | None, **more: Any) -> Place:
    """Make a place of a frame. `more` are the other fields of Place."""
    if frame is None:
        return Place(**more)
    return Place(frame.file, frame.line, frame.function, line_kind=frame.line_kind, **more)


SavingBasis = Literal["at most", "at most; other findings count the same time", "estimate", "replayed"]
"""At most: no fix can save more. Replayed: the trace without what the fix removes, and how much of that came
back where it was measured; see savings.py."""


@dataclass(frozen=True)
class Saving:
    """The time that a fix saves over the step window: eight in ten fixes lie between the ends.

    The report says it as a share of the step without the recorder, which is shorter, and in its time.

    likely_ns: 0 if only a bound is known. possible: the share that the account allows, at least and at most.
    pairs: how many measured fixes of this kind say how much of that came back. beyond: which other time the
    fix frees, if it may save more than the finding costs.
    """

    low_ns: int
    high_ns: int
    basis: SavingBasis = "at most"
    beyond: str = ""
    likely_ns: int = 0
    possible: tuple[float, float] = (0.0, 0.0)
    pairs: int = 0

    @property
    def middle_ns(self) -> float:
        """What it most likely saves; between the bounds, where nothing else is known. Of what other findings
        count as well, half of the lower one."""
        counted = self.basis == "at most; other findings count the same time"
        return self.likely_ns or (self.low_ns + (0 if counted else self.high_ns)) / 2


NO_SAVING = Saving(0, 0)
"""Of a finding that says what takes time, where nothing shows that any of it can go."""

WHILE_THE_GPU_WORKS = "the CPU also spends time on this while the GPU works, and then comes late"


@dataclass(frozen=True, eq=False)
class Removable:
    """What a fix removes. least: where the trace does not show how much it is, such as how fast a link is
    (None: as much as `most`). beyond: see Saving."""

    most: Removal
    least: Removal | None = None
    beyond: str = WHILE_THE_GPU_WORKS


@dataclass(frozen=True, eq=False)
class Slowed:
    """The main thread's time in a finding's cost, which recording makes longer.

    least_share: of the step window, from which on the rule finds something. What recording adds surely may
    be why a GPU waits for longer than that, and what it adds at most, why a CPU's main thread does.
    """

    time: Intervals
    least_share: float = 0.0


@dataclass(frozen=True)
class Fix:
    """What to do: a sentence, code to copy, and a page that documents it (https only).

    general: it would fit any job, and names no call of this one.
    """

    text: str
    code: str = ""
    url: str = ""
    general: bool = False


@dataclass(frozen=True)
class Range:
    """A stretch of the timeline that a finding is about."""

    start_ns: int
    end_ns: int
    device: int


@dataclass(frozen=True, eq=False)
class Finding:
    """What a rule found.

    case: which one of a rule's several findings this is, such as "logging"; it follows the rule's name.
    title: one line, with the figure that matters. summary: two or three plain sentences.
    cost_ns: cost over the step window; 0 for a finding about the recording.
    cost_bytes, cost_bytes_per_step: for a finding about memory, what is held or grows and a fix frees.
    memory_device: whose memory that is; NONE is the CPU's.
    sure: False if this recording does not show that this job can do anything about it: something harmless, or
        another rank, would look the same. Then a memory finding ranks by what is held, not by its growth, and
        a time finding counts half.
    leads: it decides what the other findings are worth, so it comes before them.
    records_again: the fix is a new recording, which saves no time.
    claims: device -> the parts of its step window that make up the cost. A nanosecond is claimed once: the
        first rule in the order of RULES gets it.
    saving: made of cost_ns and removable in savings.py. A rule gives it only for a finding that costs nothing
        of its own, or NO_SAVING.
    removable: what to replay the trace without; None if that cannot be replayed.
    slowed: what of it recording makes longer; None if nothing is.
    severity: overrides the rule's own policy for this finding.
    """

    title: str
    summary: str
    fix: Fix
    case: str = ""
    cost_ns: int = 0
    cost_bytes: int = 0
    cost_bytes_per_step: float = 0.0
    memory_device: int = NONE
    sure: bool = True
    leads: bool = False
    records_again: bool = False
    saving: Saving | None = None
    evidence: list[Evidence] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    claims: Mapping[int, Intervals] = field(default_factory=dict)
    removable: Removable | None = None
    slowed: Slowed | None = None
    severity: Severity | None = None

    @property
    def promise(self) -> Saving:
        """What a fix saves: where nothing says so, at most what the finding costs."""
        return self.saving or Saving(0, self.cost_ns)


@dataclass(frozen=True)
class Clear:
    """Checked, no problem found. `reason` gives the figure that was checked."""

    reason: str


@dataclass(frozen=True)
class CannotTell:
    """The trace does not show it. `how_to_record` says how to record one that does. `defect`: the rule has a
    bug. `hint`: a sentence about what it may be, if that is worth a new recording; "" if not."""

    reason: str
    how_to_record: str = ""
    defect: bool = False
    hint: str = ""


NO_GPU = CannotTell(
    "no GPU activity was recorded", "Record with ProfilerActivity.CUDA on a machine with a GPU."
)

RuleAnswer = Finding | list[Finding] | Clear | CannotTell


def with_findings(answer: RuleAnswer, change: Callable[[Finding], Finding]) -> RuleAnswer:
    """Return the answer with each of its findings changed."""
    if isinstance(answer, list):
        return [change(found) for found in answer]
    return change(answer) if isinstance(answer, Finding) else answer
