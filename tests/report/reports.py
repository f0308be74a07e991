"""Reports for tests: one of a trace made in code, and one in which every name is hostile."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e|`**[a](javascript:b)**` @everyone #1 &amp; \"'"
"""A name with HTML, an escape sequence, reversed text, Markdown, a mention and a link to an issue."""


def report_of(trace: TraceBuilder, folder: Path, *, run: str = "run", worker: str = "host_1") -> pb.Report:
    return report_at(trace.write(folder / run, worker=worker), folder)


def report_at(written: Path, folder: Path) -> pb.Report:
    """Report of one trace file below the folder."""
    (file,) = (file for file in find_traces(str(folder)).files if file.path == str(written))
    return build_report(Facts(read_trace(file.path)), file)


def rows_of(report: pb.Report, id: str) -> list[dict[str, str | float]]:
    """Rows of one of the report's tables: column -> value, without what is not known. Times are in µs."""
    for table in report.tables:
        if table.id == id:
            return [dict(_cells(table, at)) for at in range(len(table.rows))]
    return []


def _cells(table: pb.Table, at: int) -> Iterator[tuple[str, str | float]]:
    for column in table.columns:
        if not column.unit:
            yield column.id, column.texts[at]
        elif column.numbers[at] >= 0:
            yield column.id, column.numbers[at] / (1e3 if column.unit == "ns" else 1)


def ranges_of(report: pb.Report, id: str, at: int = 0) -> list[tuple[float, float, int]]:
    """Where a row of a table is on the timeline: start and end in µs, and the device."""
    table = next(table for table in report.tables if table.id == id)
    return [(found.start_us, found.end_us, found.device) for found in table.rows[at].ranges]


def slow_loader(
    name: str = "train.py(12): train", *, device: str = "Test GPU", steps: int = 2
) -> TraceBuilder:
    """Steps of 1,000 µs: 600 µs of data loading in the frame `name`, a copy, a kernel."""
    trace = TraceBuilder(devices=(device,))
    main = trace.thread()
    for step in range(steps):
        at = 1000.0 * step
        main.step(step, at=at, us=1000)
        main.frame(name, at=at, us=1000)
        main.loader(at=at + 10, us=600)
        main.op("aten::to", at=at + 620, us=40)
        main.copy("HtoD", at=at + 630, us=10, runs_at=at + 645, runs_us=30, bytes=2**20, pinned=True)
        main.op("aten::mm", at=at + 670, us=30)
        main.launch("gemm", at=at + 680, us=10, runs_at=at + 700, runs_us=290)
    return trace


@cache
def _usual() -> pb.Report:
    with TemporaryDirectory() as folder:
        return report_of(slow_loader(), Path(folder))


def usual_report() -> pb.Report:
    """Return the report of `slow_loader()`: a copy, which a test may change. Its file is gone."""
    return copy.deepcopy(_usual())


def hostile(folder: Path) -> pb.Report:
    """Report of a trace with hostile names: of its file, worker, device, operators and frames."""
    trace = slow_loader(f"{HOSTILE}.py(3): {HOSTILE}", device=HOSTILE)
    main = trace.thread(HOSTILE)
    main.op(HOSTILE, at=3000, us=100)
    main.launch(HOSTILE, at=3010, us=20, runs_at=3040, runs_us=50)
    name = HOSTILE.replace("/", "").replace("\x1b", "")
    return report_of(trace, folder, run=f"run {name}", worker=name)
