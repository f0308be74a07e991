"""Say how long the steps of a run took, by what the step clocks of its ranks wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Float64
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.clock_words import clock_verdict, drift_text
from tb_gpudiag.report.building.trace_message import report_on_file
from tb_gpudiag.report.slices.clock_slice import prepare_clock
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.trace.files.file_names import worker_and_span
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.step_clocks.clock_state import (
    FIRST_PHASE,
    TOTAL,
    ClockState,
    RankSteps,
    StepLines,
    read_lines,
    read_state,
)
from tb_gpudiag.vocabulary.written import PHASES
from tb_gpudiag.wording.format import count, one_line

_MOST_RANKS: Final = 1_024
_MOST_RECORDINGS: Final = 200
_MOST_ERRORS: Final = 8
_MOST_TEXT: Final = 1_000
_US: Final = 1e3  # per ms


def report_on_clocks(file: TraceFile) -> tuple[pb.Report, Prepared]:
    """Build the report about a folder of step clocks, which is all that it has, and what its slices are cut
    from. Raises GpudiagError: no rank can be read. OSError: the folder cannot be listed."""
    lines, errors = read_lines(file.path, file.folder)
    began_s = min(found.start_s for found in lines.values())
    state = of_this_job(read_state(file.path, file.folder, file.run), began_s)
    found = build_clock_report(lines, state)
    found.notes.extend(one_line(f"Not read: {error}.", _MOST_TEXT) for error in errors[:_MOST_ERRORS])
    found.drifts, headline, found.sentence = clock_verdict(state.ranks, one_line(state.why, _MOST_TEXT))
    verdict = pb.Verdict(sentence=found.sentence, headline=headline)
    return report_on_file(file, verdict, clock=found), prepare_clock(lines)


def of_this_job(state: ClockState, start_s: float) -> ClockState:
    """Return the state without what an earlier job in the folder left. start_s: of the first step."""
    return ClockState(
        state.run,
        state.why if state.ordered_s >= start_s else "",
        state.ordered_s,
        state.ranks,
        {rank: [one for one in made if one.time_s >= start_s] for rank, made in state.recordings.items()},
    )


def build_clock_report(lines: dict[int, StepLines], state: ClockState) -> pb.ClockReport:
    """Build the report, without its sentence."""
    now = {rank.rank: rank for rank in state.ranks}
    shown = dict(list(lines.items())[:_MOST_RANKS])
    report = pb.ClockReport(ranks=[_rank(rank, found, now.get(rank)) for rank, found in shown.items()])
    made = sorted(
        ((one.time_s, rank, one) for rank, found in state.recordings.items() for one in found),
        key=lambda each: each[:2],
    )
    for time_s, rank, one in made[-_MOST_RECORDINGS:]:
        worker, span = worker_and_span(one.file)
        report.recordings.add(
            rank=rank,
            step=one.step,
            why=one_line(one.why, _MOST_TEXT),
            worker=one_line(worker),
            span=one_line(span),
            time_s=time_s,
        )
    notes = []
    most = max(int(found.steps.max()) for found in lines.values())
    if most > 1:
        notes.append(
            f"Later points are means of up to {count(most)} steps: there, a single slow step does not show."
        )
    if len(lines) > _MOST_RANKS:
        notes.append(f"{count(len(lines) - _MOST_RANKS, 'rank')} with higher numbers left out.")
    report.notes.extend(notes)
    return report


def _rank(rank: int, lines: StepLines, now: RankSteps | None) -> pb.ClockRank:
    drifts = now is not None and now.drifts > 0 and len(now.longer_ms) > 0
    return pb.ClockRank(
        rank=rank,
        steps=float(lines.steps.sum()),
        last_step=float(lines.step[-1]),
        step_us=_median(lines.values[:, TOTAL], lines.steps) * _US,
        now_us=now.step_ms * _US if now else 0.0,
        phases=_phases(lines),
        drift=drift_text(now) if now and drifts else "",
        since=now.since if now and drifts else NONE,
    )


def _phases(lines: StepLines) -> list[pb.ClockPhase]:
    """Of the steps whose phases were timed: together they are these steps."""
    values = lines.values[:, FIRST_PHASE : FIRST_PHASE + len(PHASES)]
    timed = ~np.isnan(values).any(axis=1)
    values, steps = values[timed], lines.steps[timed]
    if not len(values):
        return []
    sums = (values * steps[:, None]).sum(axis=0)
    whole = max(float(sums.sum()), 1e-12)
    return [
        pb.ClockPhase(name=name, us=_median(values[:, at], steps) * _US, share=float(sums[at]) / whole)
        for at, name in enumerate(PHASES)
    ]


def _median(values: Float64, steps: Sequence[int] | np.ndarray) -> float:
    """Return the median over steps: a line of several counts as often."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(np.asarray(steps)[order])
    return float(values[order[np.searchsorted(sums, sums[-1] / 2)]])
