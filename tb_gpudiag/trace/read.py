"""Read a file into a Trace: a profiler's trace, a memory snapshot or a memory timeline. What cannot be read
is refused with a reason.

The documents follow one another, a line each, and their events have no `pid`: which GPU it was is not said.

Some are known by how they start. Others are traces in torch.profiler's JSON format that another program
wrote: what is an operator, a call or a kernel is known by its category alone, so nothing can be read of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.removing import CredentialSearch, cleaned
from tb_gpudiag.trace.events import Events, Status, Trace
from tb_gpudiag.trace.files.file_names import (
    is_database,
    is_memory_timeline,
    is_memory_viz_page,
    is_pftrace,
    is_pickle,
    is_report,
    is_rocprof,
    pickle_of_page,
    report_refused,
)
from tb_gpudiag.trace.files.source import DEFAULT_LIMITS, WAITING_FOR_STORE, Limits, Source, whole_file
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.chunks import EventArray, Workers
from tb_gpudiag.trace.kineto.settle import Settler
from tb_gpudiag.trace.kineto.top import Stream, TopLevel
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category

NOTE: Final = "recorded by Triton's proton: kernels alone, and the file does not say which GPU: 0 is assumed"

_START: Final = lazy_re(rb'\s*\{"displayTimeUnit":"us","traceEvents":\[\{"args":\{"call_stack":\[')
# Names cannot contain these: in them, quotes are escaped.
_NEXT_DOCUMENT: Final = lazy_re(rb'\]\}\s*\{"displayTimeUnit":"us","traceEvents":\[')
_WITHOUT_PID: Final = b'"ph":"X","tid":'
_ELEMENT: Final = b'{"args":'


def is_proton_trace(head: bytes) -> bool:
    """Return whether a file that starts like this is such a trace."""
    return _START.match(head) is not None


def joined(blocks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """Yield the text as one document. longest: bytes that are held back at most, for an event to end."""
    held = b""
    for block in blocks:
        held += block
        cut = max(held.rfind(_ELEMENT), 0) if len(held) <= longest else len(held)
        yield _mended(held[:cut])
        held = held[cut:]
    yield _mended(held)


def _mended(text: bytes) -> bytes:
    return _NEXT_DOCUMENT.sub(b",", text).replace(_WITHOUT_PID, b'"ph":"X","pid":0,"tid":')


# A tree of Triton's proton, whose keys are sorted: `children`, `frame`, `metrics`.
_HATCHET_START: Final = lazy_re(rb'\s*\[\s*\{\s*"(children"\s*:\s*\[|frame"\s*:\s*\{\s*"name")')

# The span that torch.profiler writes around each recording, even where nothing else happened.
_OWN_SPAN: Final = lazy_re(r"PyTorch Profiler \(\d+\)")

# Some of its events have a category that torch 1.8 had, too: `Kernel`.
_ONNX: Final = ("a profile of ONNX Runtime", lazy_re(rb'"cat"\s*:\s*"Session"'))

_WRITERS: Final = (
    _ONNX,
    (
        "an export of torch.autograd.profiler, which has no launches",
        lazy_re(rb'"pid"\s*:\s*"(CPU|CUDA) functions"', re.IGNORECASE),
    ),
    ("torch.compile's log of its own time", lazy_re(rb'"cat"\s*:\s*"dynamo_timed"')),
    ("a profile of the inside of kernels by Triton", lazy_re(rb'"pid"\s*:\s*"[^"]{0,999} CTA\d+"')),
    ("a trace of NCCL's profiler plug-in", lazy_re(rb'"cat"\s*:\s*"(GROUP_API|KERNEL_LAUNCH)"')),
    (
        "a profile of TensorFlow or JAX",
        lazy_re(rb'"/(device:|host:CPU|job:)|"cat"\s*:\s*"(Op|DataFlow)"|"tf_op"'),
    ),
    ("a trace of Chrome", lazy_re(rb'"cat"\s*:\s*"(__metadata|[\w.,-]{0,99}devtools\.)')),
    ("a trace of VizTracer", lazy_re(rb'"viztracer_metadata"|"cat"\s*:\s*"FEE"')),
    ("a profile of ROCm's rocprof", lazy_re(rb'"BeginNs"|"\d+ (CPU H\w+ API|GPU\d+)"')),
)  # fmt: skip
"""What it looks like, and its sign in the first events. The first match counts."""

_REMEDY: Final = (
    "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), and write "
    "the file with tensorboard_trace_handler or export_chrome_trace"
)


def refuse_unread(head: bytes, path: str) -> None:
    """Raise NotATrace for a file that starts like one that cannot be read."""
    said, remedy = "", ""
    if head.lstrip()[:1] == b"<":
        said = "it is an HTML page, but not one of torch.cuda._memory_viz"
        remedy = "export a memory timeline to a name ending in .raw.json.gz instead"
    elif kineto.is_execution_trace(head):
        said = (
            "it is an execution trace (ExecutionTraceObserver): it has operators and their inputs, but no "
            "time on the GPU"
        )
        remedy = (
            "name the profiler's trace of the same steps, which tensorboard_trace_handler or "
            "export_chrome_trace writes"
        )
    elif _HATCHET_START.match(head):
        said = "it is a tree of Triton's proton: the sum of each kernel, and not when the kernels ran"
        remedy = 'record with proton.start(NAME, data="trace"), or with torch.profiler'
    if said:
        raise NotATrace(said, where=path, remedy=remedy)


def refuse_foreign(trace: Trace, top_level: bool, head: bytes, path: str) -> None:
    """Raise NotATrace if another program wrote this trace.

    top_level: the file has top-level values of torch.profiler's. head: its first events.
    """
    ours = top_level or len(trace.memory) > 0 or _has_category(trace.events) or not trace.events_read
    written_by = (name for name, sign in (_WRITERS if not ours else [_ONNX]) if sign.search(head))
    looks_like = next(written_by, "" if ours else "another program's trace, or one written by hand")
    if looks_like:
        said = f"it is not a recording of torch.profiler: it looks like {looks_like}"
        raise NotATrace(said, where=path, remedy=_REMEDY)


def _has_category(events: Events) -> bool:
    known = bool((events.category != Category.OTHER).any())
    return known or any(_OWN_SPAN.fullmatch(name) for name in events.names)


__all__ = ["Limits", "read_trace"]

# torch writes a trace in one go. A trace that ends in the middle and has not grown for this long is cut off.
WRITING_GRACE_S: Final = 60.0
# Enough to see past white space at the start of a file.
_HEAD_BYTES: Final = 4 << 10
# Enough for some hundred events, which show who wrote them.
_FIRST_EVENTS_BYTES: Final = 64 << 10
# Share of the whole; the rest is joining and sorting.
_READING_SHARE: Final = 0.9

_READING: Final = "reading"


def read_trace(
    path: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[float, str], None] | None = None,
    folder: str = "",
) -> Trace:
    """Read one file: a local path or an fsspec URL, plain or gzip. Its first bytes say what it is:

    - a trace, of any generation of the format;
    - a memory snapshot (`torch.cuda.memory._dump_snapshot`), of which only plain data is unpickled, or the
      page that torch.cuda._memory_viz made of one;
    - a memory timeline (`export_memory_timeline`, but not its HTML);
    - what `nsys export --type sqlite` made of a report of Nsight Systems;
    - a `.pftrace` that torch wrote;
    - what `rocprofv3 --output-format json` wrote, and kernels that Triton's proton recorded as a trace.

    `events_read` and `malformed_events` add up to the elements of `traceEvents` that end within the file. An
    element is malformed if it is not JSON and cannot be repaired, if it is not an object with a `ph`, or if
    it is a span or `[memory]` event without a usable `ts` or with sizes that no machine has. A span without
    a usable `dur` is read as 0 ns long, and counts as malformed. Several broken elements next
    to each other may count as one.

    `progress` is called from this thread with a share from 0 to 1 and the name of the stage.
    `folder`: the log directory that the file has to be in, whatever links there are; empty for anywhere.

    Raises only TraceError: EmptyFile, NotATrace, Unsafe, TooLarge, TooDeep, Unreadable. A trace that ends in
    the middle is not an error: it is read up to its last whole event, and `status` says so.
    """
    return cleaned(_read(path, folder, limits, progress or (lambda share, stage: None)))


def _read(path: str, folder: str, limits: Limits, report: Callable[[float, str], None]) -> Trace:
    def tell(silent: bool) -> None:
        report(_READING_SHARE * source.share, WAITING_FOR_STORE if silent else _READING)

    source = Source(path, limits, folder, tell)
    with source:
        blocks = iter(source)
        first = next(blocks, b"")
        blocks = chain([first], blocks)
        if is_database(first):
            from tb_gpudiag.trace.nsys.nsys import read_export  # and SQLite: other traces need neither

            return read_export(source, blocks, limits, report)
        if is_report(path):
            raise report_refused(path)
        is_page = is_memory_viz_page(first[:_HEAD_BYTES])
        if is_page or is_pickle(first):
            from tb_gpudiag.trace.memory.snapshot import read_snapshot

            whole = _whole(blocks, source, limits)
            return read_snapshot(pickle_of_page(whole, path) if is_page else whole, limits, path, report)
        if is_memory_timeline(first[:_HEAD_BYTES]):
            from tb_gpudiag.trace.memory.memory_timeline import read_memory_timeline

            return read_memory_timeline(_whole(blocks, source, limits), path, report)
        if is_pftrace(first[:_HEAD_BYTES]):
            from tb_gpudiag.trace.perfetto.pftrace import read_pftrace  # and Protocol Buffers' descriptors

            return read_pftrace(blocks, path, report)
        refuse_unread(first[:_HEAD_BYTES], path)
        if is_rocprof(first[:_HEAD_BYTES]):
            from tb_gpudiag.trace.rocprof.rocprof import read_rocprof  # and Arrow's JSON

            return read_rocprof(blocks, path, report)
        if is_proton_trace(first[:_HEAD_BYTES]):
            joint = joined(blocks, limits.max_element_bytes)
            trace = _read_events(source, joint, limits, report)
            return replace(trace, notes=[NOTE, *trace.notes])
        return _read_events(source, blocks, limits, report)


def _whole(blocks: Iterator[bytes], source: Source, limits: Limits) -> bytes:
    """Return the whole content of a file that cannot be read piece by piece. Raises TooLarge."""
    remedy = "record with a smaller max_entries, or raise Limits.max_snapshot_bytes"
    return whole_file(blocks, limits.max_snapshot_bytes, source.path, remedy)


def _read_events(
    source: Source, blocks: Iterator[bytes], limits: Limits, report: Callable[[float, str], None]
) -> Trace:
    assembly = Assembly()
    path = source.path
    first = [next(blocks, b""), next(blocks, b"")]  # the very first block may be short
    head, blocks = b"".join(first)[:_FIRST_EVENTS_BYTES], chain(first, blocks)
    with closing(Workers()) as workers, CredentialSearch() as search:
        settler = Settler(limits, path)

        def read_events(stream: Stream) -> bool:
            def tell() -> None:
                report(_READING_SHARE * source.share, _READING)

            return EventArray(stream, workers, settler, assembly, tell).read()

        top = TopLevel(Stream(search.through(blocks)), limits, path, read_events)
        top.walk()
        searched = search.finish()
    if top.bare and not assembly.events_read:
        raise NotATrace(
            "it is a JSON list without trace events",
            where=path,
            remedy="the file is damaged, or not a torch.profiler trace: delete it or record again",
        )
    status: Status = "COMPLETE"
    if not top.whole:
        status = "WRITING" if top.cut_off and source.age_s() < WRITING_GRACE_S else "PARTIAL"
    report(_READING_SHARE, "sorting")
    notes = [*([] if top.whole else source.notes), *top.notes]
    trace = assembly.trace(kineto.metadata(top.values), searched, notes, status)
    report(1.0, "read")
    refuse_foreign(trace, bool(top.values), head, path)
    return trace
