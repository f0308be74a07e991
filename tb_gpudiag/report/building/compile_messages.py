"""What torch.compile's log says, beside the times in the trace: why it compiled, where graphs break, and why
CUDA graphs are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.intervals import ShownRanges, longest
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.waiting.compilation import steps_at
from tb_gpudiag.facts.waiting.compile_reasons import (
    CompileReasons,
    GraphBreak,
    LoggedCompilation,
    main_guards,
)
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, Cell, place, table_message
from tb_gpudiag.report.essentials import code_place
from tb_gpudiag.rules.answer import Place
from tb_gpudiag.rules.shared.compile_causes import said
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.vocabulary.marks import resumed_name
from tb_gpudiag.wording.format import in_quotes, one_line

COMPILATIONS_LIMIT = 100
"""Rows of each table. The page searches none of them."""

ROWS_FIRST = 8
"""Rows of the text."""

REASONS_LIMIT = 3
TEXT_LIMIT = 400


def compile_log_message(reasons: CompileReasons) -> pb.CompileLog:
    """Describe the log."""
    log = reasons.log
    return pb.CompileLog(
        name=one_line(log.name),
        torch=one_line(log.torch),
        entries=min(log.entries, UINT32_MAX),
        malformed_entries=min(log.malformed, UINT32_MAX),
        notes=[*map(one_line, log.notes), *_notes(reasons)],
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


def compile_tables(reasons: CompileReasons, events: Events, steps: Steps) -> list[pb.Table]:
    """Compilations in the recording, the longest first, and those before it, which no view shows; breaks of
    graphs and functions without CUDA graphs, most time first."""

    def ranges(rows: Iterable[int]) -> list[ShownRanges]:
        own = [[] if event == NONE else [event] for event in rows]
        return [longest(events.start_ns[event], events.end_ns[event]) for event in own]

    breaks = reasons.breaks[:COMPILATIONS_LIMIT]
    broken = [
        (
            code_place(_place_of_break(found)),
            found.broken.reason,
            found.runs,
            found.between_ns or None,
            found.met,
        )
        for found in breaks
    ]
    skipped = reasons.without_graphs[:COMPILATIONS_LIMIT]
    without = [
        (*_without(found.compilation), found.runs, found.host_ns, found.compilation.id) for found in skipped
    ]
    broken_at, skipped_at = ranges(found.event for found in breaks), ranges(found.event for found in skipped)
    return [
        *(_compilations(reasons, events, steps, ranges) if reasons.is_joined else []),
        table_message("graph_breaks", broken, first=ROWS_FIRST, ranges=broken_at),
        table_message("without_graphs", without, first=ROWS_FIRST, ranges=skipped_at),
    ]


def _compilations(
    reasons: CompileReasons,
    events: Events,
    steps: Steps,
    ranges: Callable[[Iterable[int]], list[ShownRanges]],
) -> list[pb.Table]:
    guards = main_guards(reasons.log.compilations)
    recorded = sorted(reasons.by_event, key=lambda event: -int(events.duration_ns[event]))
    inside = {id(compilation) for compilation in reasons.by_event.values()}
    earlier = [c for c in reversed(reasons.log.compilations) if id(c) not in inside]
    starts_ns = events.start_ns[np.array(recorded, np.int64)]
    step = dict(zip(recorded, steps_at(steps, starts_ns), strict=True))

    def row(found: LoggedCompilation, event: int = NONE) -> tuple[Cell, ...]:
        failed = [f"failed: {in_quotes(found.failed, TEXT_LIMIT)}"] if found.failed else []
        told = "; ".join([*failed, *(said(guard) for guard in guards[found][:REASONS_LIMIT])])
        return (
            code_place(_place(found)),
            _before(found),
            told or ("" if _before(found) else "for the first time"),
            ", ".join(found.misses),
            events.duration_ns[event] if event != NONE else None,
            found.id,
            found.duration_ns,
            ", ".join(found.hits),
            step.get(event, ""),
        )

    recorded = recorded[:COMPILATIONS_LIMIT]
    here = [row(reasons.by_event[event], event) for event in recorded]
    before = [row(compilation) for compilation in earlier[:COMPILATIONS_LIMIT]]
    return [
        table_message("compilations", here, first=ROWS_FIRST, ranges=ranges(recorded)),
        table_message("earlier_compilations", before, first=0),
    ]


def _before(compilation: LoggedCompilation) -> int:
    number = compilation.id.rpartition("/")[2]
    return int(number[:9]) if number.isdecimal() else 0


def _place(compilation: LoggedCompilation) -> pb.Place:
    name = resumed_name(compilation.function)
    return place(Place(compilation.file, compilation.line, name, line_kind=LineKind.DEFINITION))


def _place_of_break(found: GraphBreak) -> pb.Place:
    broken = found.broken
    name = resumed_name(broken.function)
    return place(Place(broken.file, broken.line, name, line_kind=LineKind.RUNNING))


def _without(found: LoggedCompilation) -> tuple[str, str]:
    """The line at fault, or the function, and why CUDA graphs are not used."""
    skipped = found.no_graph
    assert skipped is not None
    if not skipped.line:
        return code_place(_place(found)), skipped.reason
    name = resumed_name(found.function)
    at = Place(skipped.file, skipped.line, name, line_kind=LineKind.RUNNING)
    return code_place(place(at)), skipped.reason
