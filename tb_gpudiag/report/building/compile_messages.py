"""What torch.compile's log says, beside the times in the trace."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.intervals import longest
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.waiting.compilation import steps_at
from tb_gpudiag.facts.waiting.compile_reasons import (
    CompileReasons,
    GraphBreak,
    LoggedCompilation,
    WithoutGraph,
    main_guards,
)
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, place, time_ranges, us
from tb_gpudiag.rules.answer import Place
from tb_gpudiag.rules.shared.compile_causes import said
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.vocabulary.marks import resumed_name
from tb_gpudiag.wording.format import one_line

COMPILATIONS_LIMIT = 100
"""Rows of each table. The page searches none of them."""

REASONS_LIMIT = 3
TEXT_LIMIT = 400


def compile_log_message(reasons: CompileReasons, events: Events, steps: Steps) -> pb.CompileLog:
    """Describe the log, and what it says about the recording."""
    log = reasons.log
    return pb.CompileLog(
        name=one_line(log.name),
        torch=one_line(log.torch),
        entries=min(log.entries, UINT32_MAX),
        malformed_entries=min(log.malformed, UINT32_MAX),
        notes=[*map(one_line, log.notes), *_notes(reasons)],
        compilations=_compilations(reasons, events, steps) if reasons.is_joined else [],
        breaks=[_break(found, events) for found in reasons.breaks[:COMPILATIONS_LIMIT]],
        without_graphs=[_without(found, events) for found in reasons.without_graphs[:COMPILATIONS_LIMIT]],
    )


def _notes(reasons: CompileReasons) -> list[str]:
    known, strangers = len(reasons.by_event), reasons.strangers
    if not reasons.is_joined and not known + strangers:
        return [f"It is of process {reasons.log.pid}, which is not in the recording, so it is not used."]
    if not reasons.is_joined:
        share = f"{known:,} of the {known + strangers:,} compilations in the recording are in it"
        return [f"{share}: it is of another process or of another time, so it is not used."]
    if strangers:
        return [f"{strangers:,} of the {known + strangers:,} compilations in the recording are not in it."]
    if not known:
        return [
            "Nothing was compiled while the profiler recorded: it is joined by the number of its process."
        ]
    return []


def _compilations(reasons: CompileReasons, events: Events, steps: Steps) -> list[pb.Compilation]:
    """Those in the recording, the longest first, and then the others, the last first."""
    guards = main_guards(reasons.log.compilations)
    recorded = sorted(reasons.by_event, key=lambda event: -int(events.duration_ns[event]))
    inside = {id(compilation) for compilation in reasons.by_event.values()}
    others = [c for c in reversed(reasons.log.compilations) if id(c) not in inside]
    rows = [(reasons.by_event[event], event) for event in recorded] + [(c, NONE) for c in others]
    starts_ns = events.start_ns[np.array(recorded, np.int64)]
    step = dict(zip(recorded, steps_at(steps, starts_ns), strict=True))
    return [
        pb.Compilation(
            id=compilation.id,
            place=_place(compilation, int(events.duration_ns[event]) if event != NONE else 0),
            before=_before(compilation),
            reasons=[one_line(said(guard), TEXT_LIMIT) for guard in guards[compilation][:REASONS_LIMIT]],
            logged_us=us(compilation.duration_ns),
            misses=compilation.misses,
            hits=compilation.hits,
            failed=one_line(compilation.failed, TEXT_LIMIT),
            step=one_line(step.get(event, "")),
            ranges=_ranges(events, event),
        )
        for compilation, event in rows[:COMPILATIONS_LIMIT]
    ]


def _before(compilation: LoggedCompilation) -> int:
    number = compilation.id.rpartition("/")[2]
    return int(number[:9]) if number.isdecimal() else 0


def _place(compilation: LoggedCompilation, time_ns: int) -> pb.Place:
    name = resumed_name(compilation.function)
    found = Place(compilation.file, compilation.line, name, time_ns=time_ns, line_kind=LineKind.DEFINITION)
    return place(found)


def _break(found: GraphBreak, events: Events) -> pb.GraphBreak:
    broken = found.broken
    at = Place(
        broken.file,
        broken.line,
        resumed_name(broken.function),
        time_ns=found.between_ns,
        line_kind=LineKind.RUNNING,
    )
    return pb.GraphBreak(
        place=place(at),
        reason=one_line(broken.reason, TEXT_LIMIT),
        compilations=found.met,
        runs=found.runs,
        ranges=_ranges(events, found.event),
    )


def _without(found: WithoutGraph, events: Events) -> pb.WithoutGraph:
    skipped = found.compilation.no_graph
    assert skipped is not None
    at = _place(found.compilation, found.host_ns)
    if skipped.line:
        name = resumed_name(found.compilation.function)
        running = LineKind.RUNNING
        at = place(Place(skipped.file, skipped.line, name, time_ns=found.host_ns, line_kind=running))
    return pb.WithoutGraph(
        id=found.compilation.id,
        place=at,
        reason=one_line(skipped.reason, TEXT_LIMIT),
        runs=found.runs,
        ranges=_ranges(events, found.event),
    )


def _ranges(events: Events, event: int) -> list[pb.TimeRange]:
    if event == NONE:
        return []
    return time_ranges(longest(events.start_ns[[event]], events.end_ns[[event]]))
