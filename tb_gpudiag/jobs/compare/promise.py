"""Findings of both sides: which are gone, new or changed; and what became of each finding of the base: was
its fix made, what did it give, and was that promised?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final

from tb_gpudiag.digest.digest import WORK
from tb_gpudiag.errors import UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.conclusion import CANNOT_TELL, Conclusion
from tb_gpudiag.jobs.compare.noise import Difference
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import hides_kernels
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.rule import family_of
from tb_gpudiag.wording.format import one_line, time_us

# The verdict ignores a smaller change of the whole step, too.
CHANGED_SHARE: Final = 0.02
# Sizes of memory are exact, but alignment and caching move them by a few percent.
CHANGED_SIZE: Final = 0.1
# If half of a cost is gone, the fix was made. What is left is still a finding.
MOSTLY_GONE: Final = 0.5

_IN_GRAPHS: Final = "The kernels of one side are in CUDA graphs that were recorded as one event each."


@dataclass(frozen=True, eq=False)
class SideFinding:
    """A finding of a side, from the rank where it costs most. Times are per step."""

    finding: pb.Finding
    cost_us: float
    low_us: float
    high_us: float
    likely_us: float  # 0 if only a bound is known

    @property
    def place(self) -> tuple[str, str]:
        """Function and operator: they stay when the code around them changes."""
        places = self.finding.places
        return (places[0].function, places[0].operator) if places else ("", "")


@dataclass(frozen=True, eq=False)
class FindingChanges:
    """Findings by what became of them. Pairs are in `kept` if they did not change, and in `changed` if they
    did. unknown: of the base, with the reason why the candidate does not show them, as a sentence."""

    gone: list[SideFinding]
    new: list[SideFinding]
    changed: list[tuple[SideFinding, SideFinding]]
    kept: list[tuple[SideFinding, SideFinding]]
    unknown: list[tuple[SideFinding, str]] = field(default_factory=list)


def compare_findings(base: Side, candidate: Side) -> FindingChanges:
    """Match findings by rule and place, then by rule in their order."""
    jobs = [build_jobs(side.digests).reports if len(side.ranks) > 1 else [] for side in (base, candidate)]
    of_base, of_candidate = _found(base, jobs[0]), _found(candidate, jobs[1])
    unknown: list[tuple[SideFinding, str]] = []
    if hides_kernels(base) != hides_kernels(candidate):
        # Findings about the known kernels of one side are neither gone nor new: the other side's are unknown.
        unknown = [(found, _IN_GRAPHS) for found in of_base if _about_kernels(found)]
        of_base, of_candidate = (
            [found for found in side if not _about_kernels(found)] for side in (of_base, of_candidate)
        )
    pairs = _matched(of_base, of_candidate, by_place=True)
    pairs += _matched(of_base, of_candidate, by_place=False)
    # A rule that could not check the candidate does not say that its findings are gone.
    unchecked = {rule: why for digest in candidate.digests for rule, why in digest.about.unchecked.items()}
    unchecked |= {
        rule.rule: f"{rule.reason}. {rule.how_to_record}" for job in jobs[1] for rule in job.unchecked
    }
    unknown += [(one, unchecked[one.finding.rule]) for one in of_base if one.finding.rule in unchecked]
    differs = [_differs(*pair, base.mean_step_ns / 1e3) for pair in pairs]
    return FindingChanges(
        gone=[found for found in of_base if found.finding.rule not in unchecked],
        new=of_candidate,
        changed=[pair for pair, changed in zip(pairs, differs, strict=True) if changed],
        kept=[pair for pair, changed in zip(pairs, differs, strict=True) if not changed],
        unknown=unknown,
    )


def _about_kernels(found: SideFinding) -> bool:
    return family_of(found.finding.rule) == "kernels"


def _matched(
    base: list[SideFinding], candidate: list[SideFinding], *, by_place: bool
) -> list[tuple[SideFinding, SideFinding]]:
    """Remove pairs of the same rule from both lists and return them."""
    pairs = []
    for one in list(base):
        for other in candidate:
            if one.finding.rule == other.finding.rule and (not by_place or one.place == other.place):
                pairs.append((one, other))
                base.remove(one)
                candidate.remove(other)
                break
    return pairs


def _found(side: Side, jobs: Iterable[pb.JobReport]) -> list[SideFinding]:
    """Return the findings of all ranks and of the job that they are, each rule and place once."""
    worst: dict[tuple[str, tuple[str, str], int], SideFinding] = {}
    for findings, steps in _reports(side, jobs):
        seen: dict[tuple[str, tuple[str, str]], int] = {}
        for found in (_per_step(finding, steps) for finding in findings):
            # A rule may have several findings at one place: the n-th of one rank is the n-th of the others.
            at = (found.finding.rule, found.place)
            seen[at] = seen.get(at, 0) + 1
            key = (*at, seen[at])
            if key not in worst or found.cost_us > worst[key].cost_us:
                worst[key] = found
    return list(worst.values())


def _reports(side: Side, jobs: Iterable[pb.JobReport]) -> Iterator[tuple[list[pb.Finding], int]]:
    """Yield the findings of each report, and over how many steps their costs are. Those of jobs first."""
    for report in jobs:
        yield list(report.findings), len(side.first.steady_steps)
    for digest in side.digests:
        yield digest.findings, len(digest.steady_steps)


def _per_step(finding: pb.Finding, steps: int) -> SideFinding:
    saving, factor = finding.saving, 1 / max(1, steps)
    return SideFinding(
        finding,
        finding.cost_us * factor,
        saving.low_per_step_us or saving.low_us * factor,
        saving.high_per_step_us or saving.high_us * factor,
        saving.likely_per_step_us or saving.likely_us * factor,
    )


def _differs(base: SideFinding, candidate: SideFinding, step_us: float) -> bool:
    one, other = base.finding, candidate.finding
    if one.severity != other.severity or abs(candidate.cost_us - base.cost_us) > CHANGED_SHARE * step_us:
        return True
    sizes = ((one.cost_bytes, other.cost_bytes), (one.cost_bytes_per_step, other.cost_bytes_per_step))
    return any(abs(b - a) > CHANGED_SIZE * max(abs(a), abs(b)) for a, b in sizes)


_NS_US: Final = 1e-3
_AGAINST: Final = {"INSIDE": "as", "BELOW": "less than", "ABOVE": "more than"}


@dataclass(frozen=True)
class MeasuredSaving:
    """How much shorter the mean step became, in µs, with bounds. untold: why nobody can tell, as a clause."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    untold: str = ""


@dataclass
class _Row:
    """A finding of the base, and what is known of it in the candidate."""

    base: SideFinding
    became: str
    left_us: float = 0.0
    why: str = ""  # it cannot be told, as a sentence
    promise: str = "NONE"
    others: list[SideFinding] = field(default_factory=list)

    @property
    def fixed(self) -> bool:
        return self.became in ("GONE", "LESS")


def measured_saving(
    mean: Difference, conclusion: Conclusion, unprofiled: tuple[float, float]
) -> MeasuredSaving:
    """Return what all changes together gave, in time without the profiler, as promises are.

    mean: the difference of the mean steps as recorded, in ns. unprofiled: how much of a step is left without
    the recorder on each side. The bounds are those of the steps, and those of recordings of equal code,
    whichever are wider.
    """
    if conclusion.verdict == CANNOT_TELL:
        return MeasuredSaving(untold="; ".join(conclusion.reasons))
    most, least = mean.candidate * (1 + conclusion.noise), mean.candidate / (1 + conclusion.noise)
    of_base, of_candidate = unprofiled
    value = mean.base * of_base - mean.candidate * of_candidate
    lower = max(mean.high, most - mean.base) - mean.value
    upper = mean.value - min(mean.low, least - mean.base)
    return MeasuredSaving(
        value * _NS_US, (value - lower * of_candidate) * _NS_US, (value + upper * of_candidate) * _NS_US
    )


def verified(findings: FindingChanges, saving: MeasuredSaving, conclusion: Conclusion) -> list[pb.Verified]:
    """Return a row for each finding of the base: what was fixed first, largest promise first."""
    # What became of each finding. Where the sides do other work, a finding may be gone for that.
    other_work = "; ".join(conclusion.obstacles)
    gone = "UNKNOWN" if other_work else "GONE"
    why = f"{other_work[0].upper()}{other_work[1:]}." if other_work else ""
    rows = [
        *(_Row(found, gone, why=why) for found in findings.gone),
        *(_Row(found, "UNKNOWN", why=why or reason) for found, reason in findings.unknown),
        *(_pair(*pair, comparable=not other_work) for pair in (*findings.changed, *findings.kept)),
    ]
    fixed = [row for row in rows if row.fixed and (row.base.high_us or row.base.cost_us)]
    for row in fixed:
        row.others = [other.base for other in fixed if other is not row]
        if row.base.high_us:
            row.promise = _judged(row, saving)
    rows.sort(key=lambda row: (not row.fixed, -row.base.high_us))
    return [_message(row, saving) for row in rows]


def _pair(base: SideFinding, candidate: SideFinding, *, comparable: bool) -> _Row:
    fixed = comparable and base.cost_us > 0 and candidate.cost_us <= MOSTLY_GONE * base.cost_us
    return _Row(base, "LESS" if fixed else "KEPT", candidate.cost_us)


def _judged(row: _Row, saving: MeasuredSaving) -> str:
    """Judge a promised range: it was kept if what was saved lies inside.

    The other fixes gave between nothing and the most that they promised; those that promised nothing,
    anything. What is left of a finding was not saved: the low end counts without it. A saving that is known
    less well than it was promised judges only a range that all of its bounds miss.
    """
    low_us = row.base.low_us * (1 - row.left_us / row.base.cost_us if row.base.cost_us else 1)
    high_us, others_us = row.base.high_us, _most(row.others)
    if saving.untold:
        return "CANNOT_TELL"
    if saving.high < low_us:
        return "BELOW"
    if 0 < saving.value <= others_us or any(not other.high_us for other in row.others):
        return "CANNOT_TELL"
    if saving.low - others_us > high_us:
        return "ABOVE"
    if saving.high - saving.low > high_us + others_us - low_us:
        return "CANNOT_TELL"
    missed = (saving.value < low_us, saving.value > high_us + others_us)
    return {(True, False): "BELOW", (False, True): "ABOVE"}.get(missed, "INSIDE")


def _most(findings: Sequence[SideFinding]) -> float:
    return sum(found.high_us for found in findings)


def _message(row: _Row, saving: MeasuredSaving) -> pb.Verified:
    one = row.base
    return pb.Verified(
        rule=one.finding.rule,
        name=one.finding.name,
        title=one_line(one.finding.title),
        place=one_line(one.place[0] or one.place[1]),
        became=row.became,
        cost_us=one.cost_us,
        left_us=row.left_us,
        low_us=one.low_us,
        likely_us=one.likely_us,
        high_us=one.high_us,
        real_us=saving.value,
        real_low_us=saving.low,
        real_high_us=saving.high,
        others_us=_most(row.others),
        promise=row.promise,
        sentence=_sentence(row, saving),
        severity=one.finding.severity,
    )


def _sentence(row: _Row, saving: MeasuredSaving) -> str:
    who = one_line(f"{row.base.finding.rule} {row.base.finding.name}")
    cost = f"{time_us(row.base.cost_us)} per step" if row.base.cost_us else ""
    if row.became == "UNKNOWN":
        return f"Cannot tell whether {who} is gone. {row.why}"
    if row.became == "KEPT":
        costs = f": it costs {time_us(row.left_us)} per step, and cost {cost} before" if cost else ""
        return f"{who} is still there{costs}."
    gone = f"{who} is gone" if row.became == "GONE" else f"Most of {who} is gone"
    left = f", of which {time_us(row.left_us)} are left" if row.left_us else ""
    before = f": it cost {cost}{left}" if cost else ""
    return f"{gone}{before}. {_promise(row, saving)}"


def _promise(row: _Row, saving: MeasuredSaving) -> str:
    """What the fix gave, against what was promised."""
    promised = promised_range(row.base.low_us, row.base.likely_us, row.base.high_us)
    if saving.untold:
        said = "no time" if row.promise == "NONE" else promised
        return f"It promised {said}. Cannot tell what it gave: {saving.untold}."
    gave = f"gave {time_us(saving.value)} per step ({time_us(saving.low)} to {time_us(saving.high)})"
    if row.promise == "NONE":
        return f"It promised no time. All changes together {gave}."
    if row.promise == "CANNOT_TELL":
        return f"It promised {promised}. {_untold(row, gave)}"
    where = f"{_AGAINST[row.promise]} promised: {promised}"
    return f"{'All fixes together' if row.others else 'It'} {gave}, {where}."


def _untold(row: _Row, gave: str) -> str:
    """Why a saving that was measured does not judge the promise."""
    if not row.others:
        return f"It {gave}, which is not known well enough to judge that: record each side more often."
    unknown = [other.finding.rule for other in row.others if not other.high_us]
    others = (
        f"{', '.join(unknown)} promised nothing"
        if unknown
        else f"the others promised up to {time_us(_most(row.others))}"
    )
    return f"All fixes together {gave}, and {others}: cannot tell what this one gave."


def promised_range(low_us: float, likely_us: float, high_us: float) -> str:
    """`400 µs (300 µs to 500 µs)`, `up to 500 µs`."""
    span = f"{time_us(low_us)} to {time_us(high_us)}" if low_us else f"up to {time_us(high_us)}"
    return f"{time_us(likely_us)} ({span})" if likely_us else span


_RECORDED: Final = (
    "These are recorded steps. A profiler slows down the host, so a fix saves less there without it: time "
    "some steps without it to know."
)


def about_finding(comparison: pb.Comparison, finding: str, where: str) -> pb.Comparison:
    """Return the comparison with what became of one rule's findings only, and a note if most of the time was
    saved on the host, which a profiler slows down.

    finding: id or name of the rule. where: the base, for the error.

    Raises:
        UsageError: the base has no such finding, or there is no such rule.
    """
    rule = find_any_rule(finding)
    if rule is None:
        raise UsageError("there is no such rule", where=one_line(finding), remedy="such as GD101")
    own = [row for row in comparison.verified if row.rule == rule.id]
    if not own:
        there = ", ".join(dict.fromkeys(row.rule for row in comparison.verified))
        raise UsageError(
            f"this recording has no finding {rule.id}",
            where=where,
            remedy=f"its findings are {there}" if there else "it has none",
        )
    found = pb.Comparison()
    found.CopyFrom(comparison)
    del found.verified[:]
    found.verified.extend(own)
    if _saved_on_the_host(comparison):
        found.notes.append(_RECORDED)
    return found


def _saved_on_the_host(comparison: pb.Comparison) -> bool:
    saved = {pb.CauseTime.Cause.Name(row.cause): row.base_us - row.candidate_us for row in comparison.causes}
    # Without launches, the host computes.
    launched = comparison.launches.base or comparison.launches.candidate
    on_gpu = sum(saved.get(part, 0.0) for part in WORK) if launched else 0.0
    return comparison.mean_step_us.difference < 0 and on_gpu < sum(saved.values()) / 2
