"""A trace file to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace import kineto
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.chunks import EventArray, Workers
from tb_gpudiag.trace.events import Status, Trace
from tb_gpudiag.trace.limits import DEFAULT_LIMITS, Limits
from tb_gpudiag.trace.parser import Parser
from tb_gpudiag.trace.settle import Settler
from tb_gpudiag.trace.source import Source
from tb_gpudiag.trace.top import Stream, TopLevel

__all__ = ["Limits", "read_trace"]

# torch writes a trace in one go: one that has not grown for this long, and ends in the middle, was cut off.
WRITING_GRACE_S: Final = 60.0
# Of the whole; the rest is joining and sorting.
_READING_SHARE: Final = 0.9


def read_trace(
    path: str, *, limits: Limits = DEFAULT_LIMITS, progress: Callable[[float, str], None] | None = None
) -> Trace:
    """Read one trace file: a local path or an fsspec URL, plain or gzip, any generation of the format.

    `events_read` and `malformed_events` together are the elements of `traceEvents` that end within the
    file. Malformed is what is not JSON and cannot be mended, what is no object with a `ph`, and a span or
    `[memory]` event without a usable `ts`. A span without a usable `dur` is read as of no duration, and
    noted.

    `progress` is called from this thread with a share from 0 to 1 and the name of the stage.

    Raises only TraceError: EmptyFile, NotATrace, TooLarge, TooDeep, Unreadable. A file that ends in the
    middle is no error: it is read up to its last whole event, and `status` says so.
    """
    report = progress or (lambda share, stage: None)
    parser = Parser()
    workers = Workers(parser)
    assembly = Assembly()
    try:
        with Source(path, limits) as source:
            settler = Settler(parser, limits, path)

            def read_events(stream: Stream) -> bool:
                def tell() -> None:
                    report(_READING_SHARE * source.share, "reading")

                return EventArray(stream, workers, settler, assembly, limits, path, tell).read()

            top = TopLevel(Stream(iter(source)), limits, path, read_events)
            top.walk()
    finally:
        workers.close()
        parser.close()
    if top.bare and not assembly.events_read:
        raise NotATrace(
            "it is a JSON list without trace events",
            where=path,
            remedy="name a file that torch.profiler.tensorboard_trace_handler wrote",
        )
    status: Status = "COMPLETE"
    if not top.whole:
        status = "WRITING" if top.cut_off and source.age_s() < WRITING_GRACE_S else "PARTIAL"
    report(_READING_SHARE, "sorting")
    events, memory, start_ns = assembly.finish()
    report(1.0, "read")
    return Trace(
        events=events,
        memory=memory,
        metadata=kineto.metadata(top.values),
        status=status,
        events_read=assembly.events_read,
        malformed_events=assembly.malformed,
        start_ns=start_ns,
        notes=[*([] if top.whole else source.notes), *top.notes, *assembly.notes],
    )
