"""Compare two sides and build the Comparison of report.proto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.digest.digest import PATH_SEPARATOR, Digest
from tb_gpudiag.jobs.compare.alignment import Row, align
from tb_gpudiag.jobs.compare.conclusion import conclude
from tb_gpudiag.jobs.compare.difference import Difference, difference_of_means, difference_of_medians
from tb_gpudiag.jobs.compare.memory_change import compare_memory
from tb_gpudiag.jobs.compare.problems import Findings, Found, compare_findings, promised
from tb_gpudiag.jobs.compare.rows import Change, changes, kernel_rows, operator_rows, rest
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import compare_shapes
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.sections.trace_header import heading
from tb_gpudiag.wording.format import count, one_line

MOST_ROWS: Final = 200
"""Rows of kernels and of operators. What has no room is summed in one more."""

_NAMES_SHOWN: Final = 3
_NS_US: Final = 1e-3


def compare(base: Sequence[Digest], candidate: Sequence[Digest]) -> pb.Comparison:
    """Compare two traces, or two jobs with a digest per rank. Neither may be empty."""
    one, other = Side(sorted(base, key=_by_rank)), Side(sorted(candidate, key=_by_rank))
    difference = difference_of_medians(one.samples_ns, other.samples_ns)
    mean = difference_of_means(one.samples_ns, other.samples_ns)
    if one.same_recording(other):
        difference = Difference(difference.base, difference.candidate, 0.0, 0.0)
    conclusion = conclude(one, other, difference, mean, compare_shapes(one, other))
    findings = compare_findings(one, other)
    names = _names(one, other)
    return pb.Comparison(
        base=names[0],
        candidate=names[1],
        step_us=_step(difference, one, other),
        mean_step_us=_step(Difference(one.mean_step_ns, other.mean_step_ns, 0.0, 0.0), one, other),
        verdict=conclusion.verdict,
        sentence=conclusion.sentence,
        notes=conclusion.notes,
        same_within_share=conclusion.within,
        causes=_causes(one, other),
        operators=_changes(operator_rows(one), operator_rows(other)),
        kernels=_changes(kernel_rows(one), kernel_rows(other)),
        findings=_findings(findings),
        promised=[
            _promised(found, one, other) for found in (promised(findings) if conclusion.comparable else [])
        ],
        memory=[
            pb.MemoryDifference(
                device=one_line(change.device),
                what=change.what,
                base_bytes=change.base_bytes,
                candidate_bytes=change.candidate_bytes,
            )
            for change in compare_memory(one, other)
        ],
        launches=pb.CountDifference(base=one.launches, candidate=other.launches),
    )


def _by_rank(digest: Digest) -> tuple[int, str]:
    return digest.about.rank, digest.about.id


def _names(base: Side, candidate: Side) -> tuple[str, str]:
    """Names for readers: what is different in the paths, else the headings of the traces."""
    paths = [_path(side) for side in (base, candidate)]
    first = next((i for i, (a, b) in enumerate(zip(*paths, strict=False)) if a != b), None)
    if first is None:
        return _heading(base), _heading(candidate)
    same_end = 0
    for a, b in zip(paths[0][:first:-1], paths[1][:first:-1], strict=False):
        if a != b:
            break
        same_end += 1
    names = [
        "/".join(path[first : len(path) - same_end]) + _size(side)
        for path, side in zip(paths, (base, candidate), strict=True)
    ]
    return one_line(names[0]), one_line(names[1])


def _path(side: Side) -> list[str]:
    """Names of the folders and the file; of the folders only for the ranks of a job."""
    names = side.first.about.path.split("/")
    return names[:-1] if len(side.digests) > 1 else names


def _size(side: Side) -> str:
    return f" ({count(len(side.digests), 'rank')})" if len(side.digests) > 1 else ""


def _heading(side: Side) -> str:
    about = side.first.about
    if len(side.digests) > 1:
        return one_line(_path(side)[-1] if about.run == "." and _path(side) else about.run) + _size(side)
    trace = pb.TraceInfo(
        run=about.run, worker=about.worker, span=about.span, path=about.path, simulated=about.simulated
    )
    return one_line(heading(trace))


def _step(difference: Difference, base: Side, candidate: Side) -> pb.StepDifference:
    return pb.StepDifference(
        base=difference.base * _NS_US,
        candidate=difference.candidate * _NS_US,
        difference=difference.value * _NS_US,
        low=difference.low * _NS_US,
        high=difference.high * _NS_US,
        base_steps=len(base.samples_ns),
        candidate_steps=len(candidate.samples_ns),
    )


def _causes(base: Side, candidate: Side) -> list[pb.CauseDifference]:
    """Parts of the mean step, in their usual order, without those that take no time on either side."""
    of_base, of_candidate = base.part_ns, candidate.part_ns
    return [
        pb.CauseDifference(
            cause=part,
            base_us=of_base.get(part, 0.0) * _NS_US,
            candidate_us=of_candidate.get(part, 0.0) * _NS_US,
        )
        for part in dict.fromkeys([*of_base, *of_candidate])
        if of_base.get(part) or of_candidate.get(part)
    ]


def _changes(base: Sequence[Row], candidate: Sequence[Row]) -> list[pb.OperatorDifference]:
    """Aligned rows, largest difference first. They add up to all of the work."""
    found = changes(align(base, candidate))
    if len(found) > MOST_ROWS:
        found = [*found[: MOST_ROWS - 1], rest(found[MOST_ROWS - 1 :])]
    return [_change(change) for change in found]


def _change(change: Change) -> pb.OperatorDifference:
    base, candidate = _joined(change.base), _joined(change.candidate)
    return pb.OperatorDifference(
        name=base or candidate,
        candidate_name=candidate if base and candidate != base else "",
        base_us=change.base_ns * _NS_US,
        candidate_us=change.candidate_ns * _NS_US,
        base_count=change.base_count,
        candidate_count=change.candidate_count,
        path=one_line(PATH_SEPARATOR.join(change.path)),
        family=change.family,
    )


def _joined(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = " + ".join(one_line(name) for name in names[:_NAMES_SHOWN])
    return f"{shown} + {more:,} more" if more > 0 else shown


def _findings(findings: Findings) -> pb.FindingsDifference:
    return pb.FindingsDifference(
        gone=[_short(found) for found in findings.gone],
        new=[_short(found) for found in findings.new],
        changed=[
            pb.FindingChange(base=_short(base), candidate=_short(candidate))
            for base, candidate in findings.changed
        ],
    )


def _short(found: Found) -> pb.Finding:
    """The finding without its ranges, which are places on the timeline of its own trace."""
    finding = pb.Finding()
    finding.CopyFrom(found.finding)
    del finding.ranges[:]
    return finding


def _promised(found: Found, base: Side, candidate: Side) -> pb.Promised:
    return pb.Promised(
        rule=found.finding.rule,
        name=found.finding.name,
        low_us=found.low_us,
        high_us=found.high_us,
        real_us=(base.mean_step_ns - candidate.mean_step_ns) * _NS_US,
    )
