"""Write a trace with tracks for why the GPU was idle, what the findings are about, and how deep the launch
queues were. Perfetto and chrome://tracing show them above the trace's own tracks.

The tracks are events of one more process. Everything else in the file stays as it is (see changed_copy.py),
but for credentials, which a copy that is made to be shown to others leaves out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import Prepared, read_meta, slice_curve, unpack
from tb_gpudiag.trace.assemble import REPAIRED_NOTE
from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.copying import Write, packing
from tb_gpudiag.trace.kineto.changed_copy import copy_with_events
from tb_gpudiag.trace.kineto.kineto import QUEUE_CATEGORY
from tb_gpudiag.wording.vocabulary import CAUSES

# Above every process id that a system gives.
PROCESS: Final = 2_000_000_000
IDLE_CATEGORY: Final = "gpudiag_idle"
FINDING_CATEGORY: Final = "gpudiag_finding"

# Viewers sort tracks by their number: findings first, then idle time.
_FIRST_DEVICE_TRACK: Final = 1_000

# Events of one counter. A longer curve has the most of each stretch.
_MOST_POINTS: Final = 50_000

# Fast: the file is read again at once, and traces have few distinct characters.
_GZIP_LEVEL: Final = 1


def annotate(
    report: pb.Report, prepared: Prepared, path: str, write: Write, *, pack: bool, folder: str = ""
) -> int:
    """Write the trace at `path` with the tracks. Return in how many places credentials were left out.

    prepared: of slices.timeline.prepare_timeline. pack: compress with gzip. folder: see
    read_trace.

    Raises UsageError if it is not a profiler's trace, and TraceError if the file cannot be read.
    """
    if report.trace.kind != pb.TraceInfo.trace:
        raise UsageError("only traces of torch.profiler can be annotated, not memory snapshots", where=path)
    mend = (
        report.trace.status != pb.TraceInfo.COMPLETE
        or report.trace.malformed_events > 0
        or REPAIRED_NOTE in report.trace.notes
    )
    with contextlib.ExitStack() as stack:
        if pack:
            write = stack.enter_context(packing(write, _GZIP_LEVEL))
        found = CredentialFilter()
        copy_with_events(
            path, tracks(report, prepared), lambda piece: write(found.feed(piece)), mend=mend, folder=folder
        )
        write(found.end())
    return found.found.total()


def tracks(report: pb.Report, prepared: Prepared) -> Iterator[bytes]:
    """Events of the tracks, each as JSON on a line."""
    meta = read_meta(prepared, "meta")
    start_ns = int(meta["file_start_ns"])
    devices = {device.id: device.name for device in report.devices}
    return itertools.chain(
        _named("process", 0, "gpudiag: why the GPU was idle"),
        [_event({"ph": "M", "name": "process_sort_index", "tid": 0, "args": {"sort_index": -1000}})],
        _findings(report, start_ns),
        _idle(prepared, meta, devices, start_ns),
        _queues(prepared, meta, start_ns),
    )


def _findings(report: pb.Report, start_ns: int) -> Iterator[bytes]:
    for number, finding in enumerate(report.findings, 1):
        if not finding.ranges:
            continue
        yield from _named("thread", number, f"{number}. {finding.title}")
        about = {"rule": finding.rule, "summary": finding.summary, "fix": finding.fix.text}
        head = {"ph": "X", "cat": FINDING_CATEGORY, "name": f"{finding.rule} {finding.name}", "tid": number}
        for place in sorted(finding.ranges, key=lambda place: place.start_us):
            start, end = round(place.start_us * 1000), round(place.end_us * 1000)
            yield _event({**head, "args": about}, ts=start + start_ns, dur=end - start)


def _idle(
    prepared: Prepared, meta: Mapping[str, Any], devices: Mapping[int, str], start_ns: int
) -> Iterator[bytes]:
    """One event for each segment of the idle ledger."""
    cut_gap = np.asarray(prepared["cut_gap"])
    for place in meta["chains"]:
        device, first = int(place["device"]), int(place["first_gap"])
        track = _FIRST_DEVICE_TRACK + device
        name = f" ({devices[device]})" if devices.get(device) else ""
        yield from _named("thread", track, f"GPU {device}{name}: idle time by cause")
        heads = [
            _head({"ph": "X", "cat": IDLE_CATEGORY, "name": CAUSES[cause.label].word, "tid": track})
            for cause in Cause
        ]
        triggers = [json.dumps(trigger.label) for trigger in Trigger]
        low, high = np.searchsorted(cut_gap, [first, first + int(place["gaps"])]).tolist()
        start = np.asarray(prepared["cut_start_ns"][low:high])
        columns = (
            (start + start_ns).tolist(),
            (np.asarray(prepared["cut_end_ns"][low:high]) - start).tolist(),
            np.asarray(prepared["cut_cause"][low:high]).tolist(),
            (cut_gap[low:high] - first).tolist(),
            np.asarray(prepared["gap_trigger"])[cut_gap[low:high]].tolist(),
        )
        for ts, dur, cause, gap, trigger in zip(*columns, strict=True):
            yield (
                f'{heads[cause]},"ts":{_us(ts)},"dur":{_us(dur)},'
                f'"args":{{"gap":{gap},"trigger":{triggers[trigger]}}}}}'
            ).encode("ascii")


def _queues(prepared: Prepared, meta: Mapping[str, Any], start_ns: int) -> Iterator[bytes]:
    """One counter for each launch queue."""
    for lane in meta["lanes"]:
        if lane["kind"] != "queue":
            continue
        curve = unpack(prepared, "queue", lane["curve"])
        part = slice_curve(curve, int(meta["start_ns"]), int(meta["end_ns"]) + 1, _MOST_POINTS)
        head = _head({"ph": "C", "cat": QUEUE_CATEGORY, "name": lane["title"], "tid": 0})
        for ts, most in zip((part.time_ns + start_ns).tolist(), part.high.tolist(), strict=True):
            yield f'{head},"ts":{_us(ts)},"args":{{"launches":{most}}}}}'.encode("ascii")


def _named(kind: str, track: int, name: str) -> Iterator[bytes]:
    yield _event({"ph": "M", "name": f"{kind}_name", "tid": track, "args": {"name": name}})
    if kind == "thread":
        yield _event({"ph": "M", "name": "thread_sort_index", "tid": track, "args": {"sort_index": track}})


def _event(fields: Mapping[str, Any], ts: int | None = None, dur: int = 0) -> bytes:
    times = "" if ts is None else f',"ts":{_us(ts)},"dur":{_us(dur)}'
    return f"{_head(fields)}{times}}}".encode("ascii")


def _head(fields: Mapping[str, Any]) -> str:
    """The fields as JSON, without the closing brace."""
    return json.dumps({"pid": PROCESS, **fields}, separators=(",", ":"))[:-1]


def _us(ns: int) -> str:
    """Exact decimal microseconds, as JSON writes numbers."""
    sign = "-" if ns < 0 else ""
    whole, rest = divmod(abs(ns), 1000)
    return f"{sign}{whole}.{rest:03}"
