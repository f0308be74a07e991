"""Findings of both sides: which are gone, new or changed, and which of those that are not there may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import hides_kernels
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.rule import family_of

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
    of_base, of_candidate = _found(base), _found(candidate)
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


def _found(side: Side) -> list[SideFinding]:
    """Return the findings of all ranks and of the job that they are, each rule and place once."""
    worst: dict[tuple[str, tuple[str, str], int], SideFinding] = {}
    for findings, steps in _reports(side):
        seen: dict[tuple[str, tuple[str, str]], int] = {}
        for found in (_per_step(finding, steps) for finding in findings):
            # A rule may have several findings at one place: the n-th of one rank is the n-th of the others.
            at = (found.finding.rule, found.place)
            seen[at] = seen.get(at, 0) + 1
            key = (*at, seen[at])
            if key not in worst or found.cost_us > worst[key].cost_us:
                worst[key] = found
    return list(worst.values())


def _reports(side: Side) -> Iterator[tuple[list[pb.Finding], int]]:
    """Yield the findings of each report, and over how many steps their costs are. Those of jobs first."""
    if len(side.ranks) > 1:
        for report in build_jobs(side.digests).reports:
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
