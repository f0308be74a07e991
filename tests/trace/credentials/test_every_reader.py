"""No reader lets a credential through, in whatever text of its file it stands, plain or escaped."""

from __future__ import annotations

import ast
import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tb_gpudiag
from tb_gpudiag.trace.compile_log.read_log import read_compile_log
from tb_gpudiag.trace.flight_recorder.read_dump import read_dumps
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.step_clocks.clock_state import read_state
from tests.builder import TraceBuilder
from tests.builder.compile_log import CompileLogBuilder
from tests.builder.nsys import Export
from tests.builder.pftrace import encoded
from tests.builder.recording import DeviceProperties
from tests.builder.rocprof import Recorded
from tests.builder.snapshot import SnapshotBuilder
from tests.trace.flight_recorder import dumps

SECRET = "a1B2" * 8
TOKEN = f"hf_{SECRET}"
TWICE = f"{TOKEN} and {TOKEN}"

# What reads no texts that are shown: where files are, and how they start.
OPEN_WITHOUT_TEXTS = {
    "trace/files": "finds files",
    "trace/kineto/inserted_copy.py": "copies bytes, which its callers filter",
    "trace/credentials/scrubbed_copy.py": "filters bytes",
    "trace/compile_log/find_log.py": "reads numbers of processes",
    "trace/nsys/": "is called by read_trace",
    "trace/step_clocks/clock_lines.py": "reads numbers",
}


def _escaped(value: Any) -> bytes:
    """JSON in which each letter and digit of a credential is escaped."""
    coded = "".join(f"\\u{ord(character):04x}" for character in TOKEN)
    return json.dumps(value).replace(TOKEN, coded).encode()


def _builder() -> TraceBuilder:
    made = TraceBuilder(devices=(f"GPU {TOKEN}",))
    main_thread = made.thread(f"main {TOKEN}")
    main_thread.step(0, at=0, us=100_000)
    main_thread.frame(f"train.py(12): {TWICE}", at=0, us=90_000)
    main_thread.op(f"aten::{TOKEN}", at=60_000, us=20_000)
    main_thread.launch(f"kernel {TOKEN}", at=60_010, us=5, runs_at=60_020, runs_us=1_000)
    made.raw({"ph": "C", "name": f"count {TOKEN}", "pid": 1, "ts": 5, "args": {TOKEN: 1}})
    return made


def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_builder().bytes())
    return found | {"host_name": TOKEN, "traceName": TOKEN, "distributedInfo": {"backend": TOKEN, "rank": 0}}


def _kineto(content: bytes, name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return read_trace(str(folder / name))

    return read


def _pftrace(folder: Path) -> object:
    (folder / "a.pftrace").write_bytes(encoded(_builder().bytes()))
    return read_trace(str(folder / "a.pftrace"))


def _rocprof(folder: Path) -> object:
    made = Recorded().gpu(DeviceProperties(f"AMD {TOKEN}", multiprocessors=304))
    made.call("hipLaunchKernel", 100, 200, 5).kernel(f"gemm {TOKEN}", 300, 900, 5, grid=(1024, 2, 1))
    made.marker(f"range {TOKEN}", 50, 950)
    document = made.document()
    document["rocprofiler-sdk-tool"][0]["metadata"]["node"] = {"hostname": TOKEN}
    (folder / "results.json").write_bytes(_escaped(document))
    return read_trace(str(folder / "results.json"))


def _nsys(folder: Path) -> object:
    export = Export().device(DeviceProperties(f"GPU {TOKEN}"))
    export.call("cudaLaunchKernel", 0, 10, 7).kernel(f"gemm {TOKEN}", 20, 90, 7).range(f"step {TWICE}", 0, 95)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=TOKEN)
    export.add("ThreadNames", nameId=export.string(f"main {TOKEN}"), globalTid=export.tid(1))
    return read_trace(str(export.write(folder / "report.sqlite")))


def _snapshot(folder: Path) -> object:
    made = SnapshotBuilder()
    made.segment(1 << 21, at=0, stack=[f"train.py(1): {TOKEN}"])
    made.allocate(512, at=1, stack=[f"{TOKEN}.py(2): step", f"lib.py(3): {TWICE}"])
    made.mark(f"phase {TOKEN}", at=1, us=5)
    return read_trace(str(made.write(folder)))


def _dumps(*, as_json: bool) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        entry = dumps.entry(f"all_reduce/{TOKEN}", 1)
        entry["process_group"] = (f"group {TOKEN}", f"group of {TWICE}")
        entry["input_dtypes"] = [TOKEN]
        entry["frames"] = [{"name": TOKEN, "filename": f"/job/{TOKEN}/train.py", "line": 3}]
        path = dumps.write(folder, 0, [entry], {f"group {TOKEN}": (0, 1)}, as_json=as_json)
        if as_json:
            path.write_bytes(_escaped(json.loads(path.read_bytes())))
        return read_dumps([str(path)])

    return read


def _clock(folder: Path) -> object:
    rank = folder / "rank-0"
    rank.mkdir()
    (folder / "order").write_bytes(_escaped({"why": f"since {TOKEN}", "time_s": 1.0}))
    made = [{"file": f"{TOKEN}.json", "why": TWICE, "step": 1, "time_s": 1.0}]
    (rank / "recorded").write_text(json.dumps({"recordings": made}))
    return read_state(str(folder), "", "run")


def _compile_log(folder: Path) -> object:
    log = CompileLogBuilder()
    log.artifact("recompile_reasons", "0/1", f"0/0: L['x'] == '{TWICE}'")
    log.artifact("dynamo_graph_break_reason", "0/1", f"call of {TOKEN}")
    log.metrics("0/1", TOKEN, f"/job/{TOKEN}.py", 1, fail_reason=TOKEN)
    return read_compile_log(str(log.write(folder)))


READERS: dict[str, Callable[[Path], object]] = {
    "trace": _kineto(json.dumps(_document()).encode(), "a.pt.trace.json"),
    "escaped trace": _kineto(_escaped(_document()), "a.pt.trace.json"),
    "packed trace": _kineto(_escaped(_document()), "a.pt.trace.json.gz"),
    "pftrace": _pftrace,
    "rocprof": _rocprof,
    "nsys": _nsys,
    "snapshot": _snapshot,
    "pickled dump": _dumps(as_json=False),
    "dump as JSON": _dumps(as_json=True),
    "step clock": _clock,
    "compile log": _compile_log,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_a_reader_returns_has_no_credential(reader: str, tmp_path: Path) -> None:
    found = READERS[reader](tmp_path)
    shown = repr(found)
    assert SECRET not in shown
    assert "[removed]" in shown
    assert SECRET.encode() not in pickle.dumps(found)


def _modules_that_open_files() -> Iterator[tuple[str, set[str]]]:
    """Modules of trace/ that open files, with the names that each of them uses."""
    package = Path(tb_gpudiag.__file__).parent
    for path in sorted((package / "trace").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if names & {"open", "open_local", "first_bytes", "Source"}:
            yield path.relative_to(package).as_posix(), names


def test_every_reader_passes_what_it_returns_through_the_search() -> None:
    for module, names in _modules_that_open_files():
        if not module.startswith(tuple(OPEN_WITHOUT_TEXTS)):
            assert "cleaned" in names, f"{module} opens files: return `cleaned(...)`, and add it to READERS"
