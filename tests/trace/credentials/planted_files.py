"""A file of each kind with a credential in each of its texts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tb_gpudiag.trace.files.file_names import FOLDER, MADE, ORDER
from tests.builder import TraceBuilder
from tests.builder.compile_log import CompileLogBuilder
from tests.builder.nsys import export_of
from tests.builder.pftrace import encoded
from tests.builder.rocprof import recorded_of
from tests.builder.snapshot import SnapshotBuilder
from tests.fuzz.odd_files import whole_file
from tests.trace.flight_recorder import dumps

SECRET: Final = "a1B2" * 8
TOKEN: Final = f"hf_{SECRET}"
TWICE: Final = f"{TOKEN} and {TOKEN}"


def job() -> TraceBuilder:
    """A job that keeps the GPU waiting, whose findings name the code at fault."""
    made = TraceBuilder(devices=(f"GPU {TOKEN}",))
    main_thread = made.thread(f"main {TOKEN}")
    for step in range(4):
        at = 100_000.0 * step
        main_thread.step(step, at=at, us=100_000)
        main_thread.frame(f"train.py(12): {TWICE}", at=at, us=90_000)
        main_thread.annotation(f"range {TOKEN}", at=at + 100, us=80_000)
        main_thread.op(f"aten::{TOKEN}", at=at + 60_000, us=20_000)
        main_thread.launch(f"kernel {TOKEN}", at=at + 60_010, us=5, runs_at=at + 60_020, runs_us=1_000)
    return made


def escaped(value: Any) -> bytes:
    """JSON in which each letter and digit of a credential is escaped."""
    coded = "".join(f"\\u{ord(character):04x}" for character in TOKEN)
    return json.dumps(value).replace(TOKEN, coded).encode()


def _document() -> dict[str, Any]:
    made = job()
    made.raw({"ph": "C", "name": f"count {TOKEN}", "pid": 1, "ts": 5, "args": {TOKEN: 1}})
    made.raw({"ph": "M", "name": "env", "pid": 1, "tid": 1, "args": {"HF_TOKEN": TOKEN, "PASS": SECRET}})
    found: dict[str, Any] = json.loads(made.bytes())
    return found | {"host_name": TOKEN, "traceName": TOKEN, "distributedInfo": {"backend": TOKEN, "rank": 0}}


def _written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def _rocprof(folder: Path) -> Path:
    document = recorded_of(job().recording).document()
    document["rocprofiler-sdk-tool"][0]["metadata"]["node"] = {"hostname": TOKEN}
    return _written(folder, "a_results.json", escaped(document))


def _nsys(folder: Path) -> Path:
    export = export_of(job().recording)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=TOKEN)
    return export.write(folder / "report.sqlite")


def _snapshot(folder: Path) -> Path:
    made = SnapshotBuilder()
    made.segment(1 << 21, at=0, stack=[f"train.py(1): {TOKEN}"])
    made.allocate(512, at=1, stack=[f"{TOKEN}.py(2): step", f"lib.py(3): {TWICE}"])
    made.mark(f"phase {TOKEN}", at=1, us=5)
    return made.write(folder)


def _dump(folder: Path, *, as_json: bool = False) -> Path:
    """The dump of one of two ranks, whose collective the other one has not called."""
    entry = dumps.entry(f"all_reduce/{TOKEN}", 1, state="started")
    entry["process_group"] = (f"group {TOKEN}", f"group of {TWICE}")
    entry["input_dtypes"] = [TOKEN]
    entry["frames"] = [{"name": TOKEN, "filename": f"/job/{TOKEN}/train.py", "line": 3}]
    groups = {f"group {TOKEN}": (0, 1)}
    dumps.write(folder, 1, [], groups)
    path = dumps.write(folder, 0, [entry], groups, as_json=as_json)
    return _written(folder, path.name, escaped(json.loads(path.read_bytes()))) if as_json else path


def _dump_as_json(folder: Path) -> Path:
    return _dump(folder, as_json=True)


def _clock(folder: Path) -> Path:
    clock = folder / FOLDER
    rank = clock / "rank-0"
    rank.mkdir(parents=True)
    time_s = 2e9  # after its lines
    (clock / ORDER).write_bytes(escaped({"why": f"since {TOKEN}", "time_s": time_s}))
    made = [{"file": f"{TOKEN}.json", "why": TWICE, "step": 1, "time_s": time_s}]
    (rank / MADE).write_text(json.dumps({"recordings": made}))
    (rank / "events.out.tfevents.1.host").write_bytes(whole_file("clocks"))
    return clock


def _compile_log(folder: Path) -> Path:
    log = CompileLogBuilder()
    log.artifact("recompile_reasons", "0/1", f"0/0: L['x'] == '{TWICE}'")
    log.artifact("dynamo_graph_break_reason", "0/1", f"call of {TOKEN}")
    log.metrics("0/1", TOKEN, f"/job/{TOKEN}.py", 1, fail_reason=TOKEN)
    return log.write(folder)


FILES: Final[dict[str, Callable[[Path], Path]]] = {
    "trace": lambda folder: _written(folder, "a.pt.trace.json", json.dumps(_document()).encode()),
    "escaped trace": lambda folder: _written(folder, "a.pt.trace.json", escaped(_document())),
    "packed trace": lambda folder: _written(folder, "a.pt.trace.json.gz", escaped(_document())),
    "pftrace": lambda folder: _written(folder, "a.pftrace", encoded(job().bytes())),
    "rocprof": _rocprof,
    "nsys": _nsys,
    "snapshot": _snapshot,
    "pickled dump": _dump,
    "dump as JSON": _dump_as_json,
    "step clock": _clock,
    "compile log": _compile_log,
}
"""Write one into a folder, and return its path: of the clocks, that of their folder."""


def with_trace(kind: str, folder: Path) -> None:
    """Write a file of this kind, and beside a log of torch.compile the trace that it is about."""
    if kind == "compile log":
        main_thread = (trace := TraceBuilder()).thread()
        main_thread.op("_compile.compile_inner (dynamo_timed)", at=10, us=900)
        main_thread.op("Torch-Compiled Region: 0/1", at=920, us=400)
        trace.write(folder)
    FILES[kind](folder)
