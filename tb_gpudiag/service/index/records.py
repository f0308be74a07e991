"""Records in TensorBoard's event files: what a training job left of recordings whose traces may be gone.

A daemon thread reads them from TensorBoard's data server, so no request and no scan waits for the server.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from tensorboard import context
from tensorboard.data.provider import RunTagFilter

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import busiest
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.index.run_rows import memory_share, row_with
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re

# TensorBoard reads its event files every 5 s, or less often.
READ_EVERY_S = 5.0

# While TensorBoard starts, it reads the event files. Without traces, the tab appears with the first record.
READ_EVERY_AT_FIRST_S: Final = 1.0
AT_FIRST_S: Final = 60.0

# Listing the tensors of thousands of runs takes at most this share of the time.
SHARE_OF_TIME: Final = 0.1

MOST_RUNS: Final = 1_000
MOST_OF_A_RUN: Final = 500
MOST_RECORDS: Final = 4_000
# The handler writes at most 15 KiB.
MOST_BYTES: Final = 32 << 10

# Three years in µs, or this many bytes: no recording has more. The sum of 90 such times in ns fits 64 bits.
_MOST_US_OR_BYTES: Final = 1e14
# Unix time of the year 2286.
_LATEST_S: Final = 1e10

# Where the handler puts its own event files: RUN/gpudiag/WORKER.
_OWN_RUN: Final = lazy_re(r"(?:(?P<run>.*)/)?gpudiag/[^/]+", re.DOTALL)
_SPAN: Final = lazy_re(r"[0-9]{1,19}")
_DIGITS_OF_NS: Final = 19


@dataclass(frozen=True)
class Record:
    """The record of one recording in an event file."""

    id: str
    file: TraceFile  # of the recording; it may be gone
    answer: bytes = field(repr=False)  # a ReportState, as gzipped JSON
    summary: Mapping[str, str] = field(repr=False)  # like that of a cache entry
    time_ns: int


class RecordReader:
    """Keeps the records that a data provider of TensorBoard has up to date.

    plugin, tag: of the tensors that are records. Without a provider, there are no records.
    """

    def __init__(self, provider: Any, plugin: str, tag: str) -> None:
        self._provider = provider
        self._plugin = plugin
        self._tag = tag
        self._of_run: dict[str, dict[bytes, Record | None]] = {}  # by content; None: damaged
        self._last: dict[str, tuple[int, float]] = {}  # by run: step and time of its last record
        self._found: tuple[Record, ...] = ()
        self._problems: tuple[GpudiagError, ...] = ()
        self._closed = threading.Event()

    def start(self, on_change: Callable[[], None]) -> None:
        """Start reading. `on_change` is called on the thread that reads."""
        if self._provider is not None:
            thread = threading.Thread(
                target=self._read_forever, args=(on_change,), name="gpudiag-records", daemon=True
            )
            thread.start()

    def close(self) -> None:
        """Stop reading, without waiting."""
        self._closed.set()

    def problems(self) -> tuple[GpudiagError, ...]:
        """Return why records are missing."""
        return self._problems

    def without_trace(self, files: Collection[TraceFile]) -> Iterator[Record]:
        """Yield the records whose trace is not among the files, sorted by run, worker and span.

        The trace of a record is in the record's run, or in the parent folder of that.
        """
        found = self._found
        if not found:
            return
        there = {(file.run, file.worker, file.span) for file in files}
        for record in found:
            file = record.file
            runs = (file.run, posixpath.dirname(file.run) or ".")
            if not any((run, file.worker, file.span) in there for run in runs):
                yield record

    def read(self) -> bool:
        """Read what is new. Return whether anything has changed."""
        before = self._found, [str(problem) for problem in self._problems]
        try:
            self._problems = tuple(self._read())
        except Exception as error:  # a data server that is gone raises anything
            self._problems = (
                GpudiagError(f"Records in event files cannot be read: {type(error).__name__}."),
            )
        return before != (self._found, [str(problem) for problem in self._problems])

    def _read(self) -> Iterator[GpudiagError]:
        ctx = context.RequestContext()
        only: dict[str, Any] = {"experiment_id": "", "plugin_name": self._plugin}
        listed = self._provider.list_tensors(ctx, **only, run_tag_filter=self._filter(None))
        last = {
            run: (series[self._tag].max_step, _sortable(series[self._tag].max_wall_time))
            for run, series in listed.items()
            if self._tag in series
        }
        runs = sorted(last, key=lambda run: last[run][1], reverse=True)
        if len(runs) > MOST_RUNS:
            yield _left_out(f"runs other than the newest {MOST_RUNS:,}")
        of_run = {run: self._of_run[run] for run in runs[:MOST_RUNS] if self._last.get(run) == last[run]}
        for run in runs[:MOST_RUNS]:
            if run not in of_run:
                data = self._provider.read_tensors(
                    ctx, **only, run_tag_filter=self._filter(run), downsample=MOST_OF_A_RUN
                )
                read = data.get(run, {}).get(self._tag, ())[-MOST_OF_A_RUN:]
                of_run[run] = _records(run, read, self._of_run.get(run, {}))
        self._of_run, self._last = of_run, {run: last[run] for run in of_run}
        # By id: a record that is written again replaces the earlier one.
        read_now = [record for records in of_run.values() for record in records.values()]
        found = {record.id: record for record in read_now if record is not None}
        newest = sorted(found.values(), key=lambda record: record.file.modified_ns)[-MOST_RECORDS:]
        if len(found) > MOST_RECORDS:
            yield _left_out(f"records other than the newest {MOST_RECORDS:,}")
        if None in read_now:
            yield _left_out("some records, which are damaged or of another version")
        self._found = tuple(
            sorted(newest, key=lambda one: (one.file.run, one.file.worker, int(one.file.span or 0)))
        )

    def _filter(self, run: str | None) -> Any:
        return RunTagFilter(runs=None if run is None else [run], tags=[self._tag])

    def _read_forever(self, on_change: Callable[[], None]) -> None:
        started_s = time.monotonic()
        while not self._closed.is_set():
            began_s = time.monotonic()
            if self.read():
                on_change()
            took_s = time.monotonic() - began_s
            at_first = not self._found and began_s - started_s < AT_FIRST_S
            every_s = min(READ_EVERY_S, READ_EVERY_AT_FIRST_S) if at_first else READ_EVERY_S
            self._closed.wait(max(every_s, took_s / SHARE_OF_TIME))


def _sortable(wall_s: float) -> float:
    """Return the time; 0 for one that is in no order with others, and differs from itself."""
    return wall_s if wall_s == wall_s else 0.0


def _left_out(what: str) -> GpudiagError:
    return GpudiagError(f"Records in event files: {what} are left out.")


def _records(
    run: str, data: Iterable[Any], before: Mapping[bytes, Record | None]
) -> dict[bytes, Record | None]:
    """Return the records of a run, by a hash of their content. Records in `before` are not read again."""
    found: dict[bytes, Record | None] = {}
    for datum in data:
        content = datum.numpy.item() if datum.numpy.size == 1 else b""
        if not isinstance(content, bytes) or len(content) > MOST_BYTES:
            content = b""
        key = hashlib.blake2b(b"%d %s" % (datum.step, content), digest_size=16).digest()
        found[key] = before[key] if key in before else _record(run, datum.step, datum.wall_time, content)
    return found


def _record(run: str, step: int, wall_s: float, content: bytes) -> Record | None:
    """Return the record; None if it is damaged."""
    own = _OWN_RUN.fullmatch(run)
    shown = (own["run"] or ".") if own else run
    try:
        report = pb.Report.FromString(content)
        _refuse_far(report)
        wall_ns = int(_in_reach(wall_s, _LATEST_S) * 1e9)
        info = report.trace
        span = info.span if _SPAN.fullmatch(info.span) else ""
        info.run, info.span = shown, span
        parts = ("record", shown, info.worker, span or str(step))
        id_ = _hash("\0".join(parts).encode("utf-8", "surrogateescape"))
        time_ns = int(span) if len(span) == _DIGITS_OF_NS else wall_ns
        row = row_with(
            report.findings,
            run=report.trace.run,
            kind="record",
            worker=report.trace.worker,
            ranks=1,
            recordings=1,
            step_us=report.step_time.median_us,
            low_step_us=report.step_time.low_us,
            high_step_us=report.step_time.high_us,
            busy_share=report.verdict.busy_share,
            account=_account(report),
            limiter=report.verdict.limiter,
            sentence=report.verdict.sentence,
            memory_share=memory_share(report.memory),
        )
        row.time_s = time_ns / 1e9
        state = to_json(pb.ReportState(state="ready", progress=1.0, report=report))
        summary = {
            "limiter": pb.Verdict.Limiter.Name(report.verdict.limiter),
            "sentence": report.verdict.sentence,
            "row": to_json(row),
        }
    except (ValueError, KeyError, DecodeError):  # KeyError: an enum of another version
        return None
    if not report.HasField("verdict"):
        return None
    file = TraceFile(info.path, shown, info.worker, span, len(content), wall_ns, _hash(content))
    return Record(id_, file, gzip.compress(state.encode("utf-8", "replace"), mtime=0), summary, time_ns)


def _account(report: pb.Report) -> list[pb.CauseTime]:
    """Return the parts of the busiest GPU's step window; none without a GPU."""
    device = busiest(report)
    if device is None:
        return []
    work = {
        "computing": device.window_computing_us,
        "copying": device.window_copying_us,
        "communicating": device.window_communicating_us,
    }
    parts = [pb.CauseTime(cause=part, us=us) for part, us in work.items() if us]
    return [*parts, *device.window_idle_by_cause]


def _refuse_far(message: Message) -> None:
    """Raise ValueError if a time or a size is larger than any recording has."""
    for kind, value in message.ListFields():
        is_bounded = kind.name == "us" or kind.name.endswith("_us") or "bytes" in kind.name
        for item in value if hasattr(value, "extend") else [value]:
            if isinstance(item, Message):
                _refuse_far(item)
            elif is_bounded and isinstance(item, float):
                _in_reach(item, _MOST_US_OR_BYTES)


def _in_reach(number: float, most: float) -> float:
    if not abs(number) <= most:  # NaN is not, either
        raise ValueError("no recording has such a number")
    return number


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=10).hexdigest()
