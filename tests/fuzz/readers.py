"""What is fuzzed of the readers alone: each takes the bytes of one file, and looks at all that is read of it.

A reader takes about a millisecond, a diagnosis a hundred: only one of SHOWN files gets that as well.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.building.clock_report import build_clock_report, of_this_job
from tb_gpudiag.report.building.clock_words import clock_verdict
from tb_gpudiag.report.building.hang_report import build_hang_report
from tb_gpudiag.report.views.compose import hang_document
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.trace.compile_log.read_log import read_compile_log
from tb_gpudiag.trace.files.file_names import MADE, NOW, ORDER
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.flight_recorder.read_dump import read_dumps
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.step_clocks.clock_state import ClockState, lines_in, read_lines, read_state
from tb_gpudiag.wording.format import one_line
from tests.fuzz.odd_files import whole_file
from tests.fuzz.scratch import scratch
from tests.fuzz.sound import assert_clear, assert_no_markup, assert_sound
from tests.report.laws import assert_report_laws
from tests.report.views.formats import to_html, to_markdown, to_text

SHOWN = 256

LIMITS = Limits(chunk_bytes=4_096)
"""Blocks so small that a file has several. To set those of users aside takes as long as to read one."""


def dumps(content: bytes) -> None:
    """Read the dump of a rank. Beside a whole one of another rank, say why the job hangs."""
    job = [_written("trace_0", content)]
    if _is_shown(content):
        job.append(_written("trace_1", whole_file("dumps")))
    found, errors = read_dumps(job)
    for error in errors:
        assert_clear(error)
    assert len(found) + len(errors) == len(job), "a whole dump is not read"
    if _is_shown(content):
        report = build_hang_report(found)
        assert len(to_json(report)) < 64 * (len(content) + 4_096), "it shows more than it read"
        document = hang_document(report, "")
        assert_no_markup(document_html(document))
        document_text(document)


def snapshots(content: bytes) -> None:
    """Read a memory snapshot."""
    _read("snapshot.pickle", content)


def rocprof(content: bytes) -> None:
    """Read the JSON of rocprofv3."""
    _read("results.json", content)


def nsys(content: bytes) -> None:
    """Read an export of Nsight Systems."""
    _read("report.sqlite", content)


def pftrace(content: bytes) -> None:
    """Read a binary trace of Perfetto."""
    _read("host_1.1.pftrace", content)


def clocks(content: bytes) -> None:
    """Read the lines of a rank's step clock, beside whole ones of another rank."""
    clock = _clock()
    (clock / "rank-0" / "events.out.tfevents.1.host").write_bytes(content)
    lines, errors = read_lines(str(clock))
    for error in errors:
        assert_clear(error)
    assert 1 in lines, "a whole rank is not read"
    for found in lines.values():
        assert (np.diff(found.step) > 0).all()
        assert not np.isinf(found.values).any()
        assert not (found.values < 0).any()
    if _is_shown(content):
        assert to_json(build_clock_report(lines, ClockState("run", "", 0.0, [], {})))


def clock_states(content: bytes) -> None:
    """Read what a rank's clock says of its last steps and its recordings."""
    clock = _clock()
    for file in (clock / "rank-0" / NOW, clock / "rank-0" / MADE, clock / ORDER):
        file.write_bytes(content)
    state = read_state(str(clock), "", "run")
    if _is_shown(content):
        lines = lines_in(whole_file("clocks"), "")
        assert to_json(build_clock_report({0: lines}, of_this_job(state, lines.start_s)))
        assert clock_verdict(state.ranks, one_line(state.why))


def compile_logs(content: bytes) -> None:
    """Read a log of torch.compile."""
    try:
        log = read_compile_log(_written("log", content))
    except TraceError as error:
        assert_clear(error)
        return
    assert log.entries + log.malformed <= len(content)
    for compilation in log.compilations:
        assert 0 <= compilation.start_ns < 1 << 62 > compilation.duration_ns >= 0
        assert 0 <= compilation.line < 1 << 31
    assert len(repr(log)) <= 64 * (len(content) + 4_096), "it has more than it read"


READERS: dict[str, Callable[[bytes], None]] = {
    "dumps": dumps,
    "snapshots": snapshots,
    "rocprof": rocprof,
    "nsys": nsys,
    "pftrace": pftrace,
    "clocks": clocks,
    "clock_states": clock_states,
    "compile_logs": compile_logs,
}


def _read(name: str, content: bytes) -> None:
    path = _written(name, content)
    try:
        trace = read_trace(path, limits=LIMITS)
    except TraceError as error:
        assert_clear(error)
        return
    assert_sound(trace, len(content))
    if _is_shown(content):
        report = build_report(Facts(trace), find_traces(path).files[0])
        assert_report_laws(report)
        assert to_json(report)
        assert_no_markup(to_html([report]))
        for view in (to_text, to_markdown):
            assert view([report])


def _written(name: str, content: bytes) -> str:
    path = scratch() / name
    path.write_bytes(content)
    return str(path)


def _is_shown(content: bytes) -> bool:
    return zlib.crc32(content) % SHOWN == 0


@cache
def _clock() -> Path:
    """A folder of the clocks of two ranks, of which the second one is whole."""
    clock = scratch() / "gpudiag" / "clock"
    for rank in ("rank-0", "rank-1"):
        os.makedirs(clock / rank)
    (clock / "rank-1" / "events.out.tfevents.1.host").write_bytes(whole_file("clocks"))
    return clock
