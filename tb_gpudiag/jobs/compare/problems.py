"""Findings of both sides: which are gone, new or changed, and the savings promised for findings that are
gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import hides_kernels
from tb_gpudiag.report import report_pb2 as pb

ABOUT_KERNELS: Final = "GD5"
"""First characters of the ids of rules about kernels."""

# The verdict ignores a smaller change of the whole step, too.
CHANGED_SHARE: Final = 0.02
# Sizes of memory are exact, but alignment and caching move them by a few percent.
CHANGED_SIZE: Final = 0.1
# If half of a cost is gone, the fix was made. What is left is still a finding.
MOSTLY_GONE: Final = 0.5


@dataclass(frozen=True)
class SideFinding:
    """A finding of a side, from the rank where it costs most. Times are per step."""

    finding: pb.Finding
    cost_us: float
    low_us: float
    high_us: float

    @property
    def place(self) -> tuple[str, str]:
        """Function and operator: they stay when the code around them changes."""
        places = self.finding.places
        return (places[0].function, places[0].operator) if places else ("", "")


@dataclass(frozen=True)
class FindingChanges:
    """Findings by what became of them. Pairs are in `kept` if they did not change, and in `changed` if they
    did."""

    gone: list[SideFinding]
    new: list[SideFinding]
    changed: list[tuple[SideFinding, SideFinding]]
    kept: list[tuple[SideFinding, SideFinding]]


def compare_findings(base: Side, candidate: Side) -> FindingChanges:
    """Match findings by rule and place, then by rule in their order."""
    of_base, of_candidate = _found(base), _found(candidate)
    if hides_kernels(base) != hides_kernels(candidate):
        # Findings about the known kernels of one side are neither gone nor new: the other side's are unknown.
        of_base, of_candidate = _not_about_kernels(of_base), _not_about_kernels(of_candidate)
    pairs = _matched(of_base, of_candidate, by_place=True)
    pairs += _matched(of_base, of_candidate, by_place=False)
    differs = [_differs(*pair, base.mean_step_ns / 1e3) for pair in pairs]
    return FindingChanges(
        gone=of_base,
        new=of_candidate,
        changed=[pair for pair, changed in zip(pairs, differs, strict=True) if changed],
        kept=[pair for pair, changed in zip(pairs, differs, strict=True) if not changed],
    )


def _not_about_kernels(findings: list[SideFinding]) -> list[SideFinding]:
    return [found for found in findings if not found.finding.rule.startswith(ABOUT_KERNELS)]


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
    """Return the findings of all ranks, each rule and place once."""
    worst: dict[tuple[str, tuple[str, str], int], SideFinding] = {}
    for digest in side.digests:
        seen: dict[tuple[str, tuple[str, str]], int] = {}
        for finding in digest.findings:
            # per_step is also a mean of the ranks; a finding costs its own rank's step.
            factor = side.per_step(digest) * len(side.digests)
            saving = finding.saving
            found = SideFinding(
                finding,
                finding.cost_us * factor,
                saving.low_per_step_us or saving.low_us * factor,
                saving.high_per_step_us or saving.high_us * factor,
            )
            # A rule may have several findings at one place: the n-th of one rank is the n-th of the others.
            at = (finding.rule, found.place)
            seen[at] = seen.get(at, 0) + 1
            key = (*at, seen[at])
            if key not in worst or found.cost_us > worst[key].cost_us:
                worst[key] = found
    return list(worst.values())


def _differs(base: SideFinding, candidate: SideFinding, step_us: float) -> bool:
    one, other = base.finding, candidate.finding
    if one.severity != other.severity or abs(candidate.cost_us - base.cost_us) > CHANGED_SHARE * step_us:
        return True
    sizes = ((one.cost_bytes, other.cost_bytes), (one.cost_bytes_per_step, other.cost_bytes_per_step))
    return any(abs(b - a) > CHANGED_SIZE * max(abs(a), abs(b)) for a, b in sizes)


def promised(findings: FindingChanges) -> list[SideFinding]:
    """Return findings of the base with a saving that are gone or mostly gone, largest saving first."""
    pairs = [*findings.changed, *findings.kept]
    fixed = [base for base, now in pairs if now.cost_us <= MOSTLY_GONE * base.cost_us > 0]
    return sorted(
        (found for found in (*findings.gone, *fixed) if found.high_us > 0), key=lambda found: -found.high_us
    )
