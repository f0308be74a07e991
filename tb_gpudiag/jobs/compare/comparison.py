"""Compare two sides and build the Comparison of report.proto."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np

from tb_gpudiag.digest.digest import PATH_SEPARATOR, Digest
from tb_gpudiag.jobs.compare.alignment import (
    WorkChange,
    WorkRow,
    align,
    changes,
    kernel_rows,
    operator_rows,
    rest,
)
from tb_gpudiag.jobs.compare.conclusion import conclude
from tb_gpudiag.jobs.compare.held import MOST_ROWS as MOST_HELD
from tb_gpudiag.jobs.compare.held import held_changes, is_of_memory
from tb_gpudiag.jobs.compare.noise import Difference, difference_of_means, difference_of_medians
from tb_gpudiag.jobs.compare.promise import compare_findings, measured_saving, verified
from tb_gpudiag.jobs.compare.side import Side, floors
from tb_gpudiag.jobs.compare.work import compare_shapes, module_changes
from tb_gpudiag.jobs.report.job_report import job_id
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import heading
from tb_gpudiag.wording.format import count, one_line

MOST_ROWS: Final = 200
"""Rows of kernels and of operators. The last row sums what has no room."""

MEMORY_FIGURES: Final = ("peak", "reserved", "floor")

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
    timed = not (is_of_memory(one) and is_of_memory(other))
    names = _names(one, other)
    return pb.Comparison(
        base=names[0],
        candidate=names[1],
        step_us=_step(difference, one, other) if timed else None,
        mean_step_us=_step(Difference(one.mean_step_ns, other.mean_step_ns, 0.0, 0.0), one, other)
        if timed
        else None,
        verdict=conclusion.verdict,
        sentence=conclusion.sentence,
        notes=conclusion.notes,
        same_within_share=conclusion.within,
        causes=_causes(one, other) if timed else [],
        operators=_changes(operator_rows(one), operator_rows(other)),
        kernels=_changes(kernel_rows(one), kernel_rows(other)),
        findings=pb.FindingsDifference(
            gone=[found.finding for found in findings.gone],
            new=[found.finding for found in findings.new],
            changed=[
                pb.FindingChange(base=base.finding, candidate=candidate.finding)
                for base, candidate in findings.changed
            ],
        ),
        verified=verified(
            findings,
            measured_saving(mean, conclusion, (one.unprofiled_share, other.unprofiled_share)),
            conclusion,
        ),
        memory=_memory(one, other),
        held=held_changes(one, other)[:MOST_HELD],
        modules=module_changes(one, other)[:MOST_ROWS] if timed else [],
        launches=pb.CountDifference(base=one.launches, candidate=other.launches) if timed else None,
        mfu=_mfu(one, other),
        base_id=_id(one),
        candidate_id=_id(other),
    )


def _mfu(base: Side, candidate: Side) -> pb.MfuDifference | None:
    """The MFU of both sides; None unless all recordings of a side have one, of the same peak."""
    peaks = [{digest.about.mfu_of for digest in side.digests} for side in (base, candidate)]
    if any(len(of) > 1 or "" in of for of in peaks):
        return None
    mean = [fmean(digest.about.mfu for digest in side.digests) for side in (base, candidate)]
    return pb.MfuDifference(
        base=mean[0], candidate=mean[1], base_of=peaks[0].pop(), candidate_of=peaks[1].pop()
    )


def _id(side: Side) -> str:
    """Return the id of a recording, or one of all recordings of the side."""
    return side.first.about.id if len(side.digests) == 1 else job_id(side.digests)


def _by_rank(digest: Digest) -> tuple[int, str]:
    return digest.about.rank, digest.about.id


def _names(base: Side, candidate: Side) -> tuple[str, str]:
    """Return names for readers: what differs in the paths, else the headings of the traces."""
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
    """Return the names of the folders and the file; for the ranks of a job, the folders only."""
    names = side.first.about.path.split("/")
    return names[:-1] if len(side.digests) > 1 else names


def _size(side: Side) -> str:
    ranks, recordings = len(side.ranks), len(side.recordings)
    parts = [count(ranks, "rank")] * (ranks > 1) + [count(recordings, "recording")] * (recordings > 1)
    return f" ({', '.join(parts)})" if parts else ""


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
    """Return the parts of the mean step, in their usual order, without parts that take no time on either
    side."""
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


def _changes(base: Sequence[WorkRow], candidate: Sequence[WorkRow]) -> list[pb.OperatorDifference]:
    """Return the aligned rows, largest difference first. They add up to all of the work."""
    found = changes(align(base, candidate))
    if len(found) > MOST_ROWS:
        found = [*found[: MOST_ROWS - 1], rest(found[MOST_ROWS - 1 :])]
    return [_change(change) for change in found]


def _change(change: WorkChange) -> pb.OperatorDifference:
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


def _memory(base: Side, candidate: Side) -> list[pb.MemoryDifference]:
    """Return the memory figures that both sides have, by device. If each side has one device, the two are
    compared, whatever their numbers."""
    of_base, of_candidate = _memory_figures(base), _memory_figures(candidate)
    if len(of_base) == 1 and len(of_candidate) == 1:
        of_candidate = dict(zip(of_base, of_candidate.values(), strict=True))
    return [
        pb.MemoryDifference(
            device=one_line(device),
            what=what,
            base_bytes=figures[what],
            candidate_bytes=of_candidate[device][what],
        )
        for device, figures in of_base.items()
        for what in MEMORY_FIGURES
        if device in of_candidate and what in figures and what in of_candidate[device]
    ]


def _memory_figures(side: Side) -> dict[str, dict[str, int]]:
    """Return figures by device, each from the rank where it is largest, as far as the traces have them."""
    found: dict[str, dict[str, int]] = {}
    for digest in side.digests:
        for memory in digest.about.memory:
            _, floor = floors(digest, memory.device)
            figures = found.setdefault(memory.device, {})
            usual = int(np.median(floor)) if len(floor) else 0
            sizes = (memory.peak_allocated_bytes, memory.peak_reserved_bytes, usual)
            for what, size in zip(MEMORY_FIGURES, sizes, strict=True):
                if size:
                    figures[what] = max(figures.get(what, 0), size)
    return found
