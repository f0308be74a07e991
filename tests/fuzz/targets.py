"""What is fuzzed: each target takes bytes, and raises only if something is wrong with gpudiag."""

from __future__ import annotations

import gzip
import json
import logging
import os
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.digest.digest_files import from_bytes, to_bytes
from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import slice_memory
from tb_gpudiag.report.slices.operators.call_details import slice_call_tree
from tb_gpudiag.report.slices.operators.operator_table import slice_kernels, slice_operators
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls, slice_roofline
from tb_gpudiag.report.slices.slice_table import Search, WantedRows
from tb_gpudiag.report.slices.timeline import prepare_timeline, slice_timeline
from tb_gpudiag.report.slices.timeline_events import event_details
from tb_gpudiag.report.slices.timeline_range import find_events, range_statistics
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.trace.credentials.removing import CredentialFilter, cleaned
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.files.file_names import is_pickle
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto.fields import Fields, read_plain
from tb_gpudiag.trace.kineto.kineto import ARGUMENTS, FIELDS, Form
from tb_gpudiag.trace.kineto.settle import GivenUp, Scanner
from tb_gpudiag.trace.memory.snapshot_pickle import load_plain
from tb_gpudiag.trace.memory.snapshot_tables import read_tables
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.builder.compile_log import NAME as COMPILE_LOG
from tests.facts.invariants import assert_invariants
from tests.fuzz.readers import READERS
from tests.plugin.server import Server
from tests.report.laws import assert_report_laws
from tests.report.views.formats import to_html, to_markdown, to_text
from tests.simulator import simulate
from tests.simulator.scenarios import SMALL
from tests.trace.support import both_ways, same_trace

MOST_BOXES = 10_000

SHOWN = 16
"""One report of so many is shown as text, Markdown and HTML, which takes as long as everything before it."""


def read(content: bytes) -> None:
    """Read a file of any kind. Its first bytes say what it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host_1.1.pt.trace.json"
        path.write_bytes(content)
        _read(path)


def trace(content: bytes) -> None:
    """Read a trace, and compute and show all there is to it."""
    _diagnose(content, "host_1.1.pt.trace.json")


def timeline(content: bytes) -> None:
    """The same for a memory timeline."""
    _diagnose(content, "host_1.1.memory.json")


def pickled(content: bytes) -> None:
    """The same for the bytes of a memory snapshot."""
    _diagnose(content, "host_1.1.pickle")


def snapshot(content: bytes) -> None:
    """The same for a memory snapshot that is given as JSON: mutations of it are snapshots again."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    pickled(pickle.dumps(document))


def scan(content: bytes) -> None:
    """Read an array of events with the scanner alone: it gives up, or finds what the plain parser finds.

    It takes a hundredth of the time of `trace`, and reaches all of the compiled code that reads events.
    """
    found = _scanner().scan(content)
    if found is None:
        return
    plain = read_plain(content)
    assert plain is not None, "the scanner reads what is no JSON"
    assert (found.count, plain.others) == (plain.count, 0)
    rows = np.arange(found.count)
    for name, (_, form) in (FIELDS | ARGUMENTS).items():
        if not found.known(name).any() and not plain.known(name).any():
            continue
        try:
            mine, theirs = (_column(fields, name, form, rows) for fields in (found, plain))
        except GivenUp:
            continue
        assert mine == theirs, name


def find(content: bytes) -> None:
    """Remove credentials: as a whole, and from a list of texts, which is the same."""
    text = content.decode("utf-8", "replace")
    clean = CredentialFilter().clean(text.encode())
    assert cleaned([text]) == [clean.decode()]


def tables(content: bytes) -> None:
    """Read a pickle with the compiled reader alone: it gives up, or finds what Python's unpickler finds."""
    found = read_tables(content) if is_pickle(content) else None
    parts = found.parts() if found is not None else None
    if found is None or parts is None:
        return
    # As text: a number that is none is not equal to itself.
    mine = repr({key: found.plain(value) for key, value in parts.items()})
    assert mine == repr(load_plain(content, Limits(), "")), "the tables have something else"


def digest(content: bytes) -> None:
    """Read a digest, given unpacked, and show it as a rank of a job, as a history and in a comparison."""
    try:
        found = from_bytes(gzip.compress(content, 1))
    except TraceError:
        return
    other = replace(found, about=replace(found.about, id="1" * 32, rank=found.about.rank + 1))
    with _rules_may_not_crash():
        for job in build_jobs([found, other]).reports:
            assert to_json(job)
    assert to_json(compare([found], [other]))
    for one in histories([found, other]):
        assert to_json(one)


def request(content: bytes) -> None:
    """Send a request to the plugin: a route and its query, such as `timeline?id=…&start_us=0`."""
    route = content.decode("utf-8", "replace").replace("\n", "").replace("ID", _server()[1])
    answer = _server()[0].get(route)
    assert answer.status_code in {200, 202, 204, 301, 304, 308, 400, 404, 405, 414}, (route, answer.status)


def compile_log(content: bytes) -> None:
    """Read a log of torch.compile that lies beside a trace, and show what it says about the trace."""
    main = (made := TraceBuilder()).thread()
    main.op("_compile.compile_inner (dynamo_timed)", at=10, us=900)
    main.op("Torch-Compiled Region: 3/1", at=920, us=400)
    main.op("Torch-Compiled Region: 6/0", at=930, us=100)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, COMPILE_LOG).write_bytes(content)
        report = diagnose_path(str(made.write(Path(folder))))
        to_text([report])
        to_html([report])
        to_json(report)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "read": read,
    "trace": trace,
    "scan": scan,
    "find": find,
    "timeline": timeline,
    "pickled": pickled,
    "tables": tables,
    "snapshot": snapshot,
    "digest": digest,
    "compile_log": compile_log,
    "request": request,
    **READERS,
}


def _diagnose(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        recorded = _read(path)
        if recorded is None:
            return
        facts = Facts(recorded)
        assert_invariants(facts)
        with _rules_may_not_crash():
            file = find_traces(str(path)).files[0]
            report = build_report(facts, file)
    assert_report_laws(report)
    made = build_digest(facts, report, file)
    assert from_bytes(to_bytes(made)).about == made.about
    assert to_json(report)
    if zlib.crc32(content) % SHOWN == 0:
        for view in (to_text, to_markdown, to_html):
            assert view([report])
    arrays = prepare_timeline(facts) | prepare_calls(facts)
    windows: tuple[tuple[float | None, float | None], ...] = ((None, None), (0.0, 1.0), (-1e12, 1e12))
    for start_us, end_us in windows:
        shown = slice_timeline(arrays, start_us, end_us, 500)
        assert sum(len(lane.box_start_us) for lane in shown.lanes) <= MOST_BOXES
        assert to_json(range_statistics(arrays, start_us, end_us))
        assert to_json(slice_operators(arrays, "operator", "stack", WantedRows("gpu_self"), start_us, end_us))
        assert to_json(slice_kernels(arrays, "operator", WantedRows("total"), start_us, end_us))
        assert to_json(slice_call_tree(arrays, "gpu", None, start_us, end_us))
    for match in find_events(arrays, Search(""), 20).events:
        assert to_json(event_details(arrays, match.number))
    assert to_json(slice_roofline(arrays))
    memory = prepare_memory(facts)
    for device in facts.memory:
        slice_memory(memory, device.device, None, None, 500)


def _read(path: Path) -> Trace | None:
    """The trace; None if the file is refused, with words for the user. The plain parser reads the same."""
    found, plain = both_ways(lambda: read_trace(str(path)))
    same_trace(found, plain)
    if isinstance(found, TraceError):
        if not found.what or not found.remedy:
            raise AssertionError("an error says what happened and what to do") from found
        return None
    return found


class _Crashes(logging.Handler):
    """A rule that crashes is logged, so that users keep the other findings. Here it is a failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])


@contextmanager
def _rules_may_not_crash() -> Iterator[None]:
    crashes, rules = _Crashes(), logging.getLogger("tb_gpudiag.rules")
    rules.addHandler(crashes)
    try:
        yield
    finally:
        rules.removeHandler(crashes)
    if crashes.errors:
        raise crashes.errors[0]


@cache
def _scanner() -> Scanner:
    return Scanner(1_000)


def _column(fields: Fields, name: str, form: Form, rows: Int64) -> list[object]:
    """Return the values of a field of all events."""
    if form is Form.TEXT:
        return list(fields.texts(name, rows[::-1].copy(), where=rows % 3 > 0).to_pylist())
    if form is Form.DECIMAL:
        return list(np.nan_to_num(fields.decimals(name, rows, rows % 3 > 0), nan=-1).tolist())
    if form is Form.MICROSECONDS:
        return [list(column) for column in fields.nanoseconds(name)]
    return list(fields.numbers(name, rows).tolist())


@cache
def _server() -> tuple[Server, str]:
    """A plugin with one analyzed trace, and its id. It lives as long as the process."""
    folder = tempfile.mkdtemp(prefix="gpudiag-fuzz-")
    path = Path(folder) / "host_1.1.pt.trace.json"
    path.write_bytes(simulate(SMALL, seed=0).bytes("C2"))
    os.utime(path, (1_700_000_000, 1_700_000_000))  # a new file might still grow
    server = Server(logdir=folder)
    trace_id = server.only_id()
    server.ready(f"report?id={trace_id}")
    return server, trace_id
