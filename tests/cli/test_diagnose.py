from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.trace.files.file_names import MAGIC
from tb_gpudiag.trace.files.find import TraceFile
from tests.builder import EPOCH_NS, CompileLogBuilder, SnapshotBuilder, TraceBuilder
from tests.report.reports import slow_loader
from tests.wording.plain import plain

pytestmark = pytest.mark.slow  # each test runs commands on whole traces


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory: a slow loader in run `slow`, for long enough to be an error, a busy GPU in run
    `nested/busy`."""
    slow_loader(steps=20).write(tmp_path / "log" / "slow")
    trace = TraceBuilder()
    main_thread = trace.thread()
    main_thread.step(0, at=0, us=1000)
    main_thread.frame("train.py(3): f", at=0, us=1000)
    main_thread.launch("gemm", at=0, us=5, runs_at=6, runs_us=994)
    trace.write(tmp_path / "log" / "nested" / "busy")
    return tmp_path / "log"


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def _runs(document: Any) -> list[str]:
    return [report["trace"]["run"] for report in document["reports"]]


CONTRACT: dict[str, Any] = {
    "schema_version": 0,
    "generator": "",
    "trace": {
        **dict.fromkeys(("run", "worker", "span", "path", "status", "host"), ""),
        **dict.fromkeys(("events", "malformed_events", "rank", "world_size"), 0),
        "recorded": dict.fromkeys(("steps", "stacks", "shapes", "memory", "flops"), False),
    },
    "devices": [
        {
            "name": "",
            **dict.fromkeys(
                ("id", "span_us", "busy_us", "idle_us", "gaps", "window_us", "window_idle_us"), 0
            ),
            "idle_by_cause": [{"cause": "", "us": 0}],
            "idle_by_trigger": [{"trigger": "", "us": 0}],
            "window_idle_by_cause": [{"cause": "", "us": 0}],
        }
    ],
    "steps": [{"name": "", "start_us": 0, "duration_us": 0}],
    "verdict": {"limiter": "", "sentence": ""},
    "findings": [
        {
            **dict.fromkeys(("rule", "name", "severity", "title", "summary"), ""),
            "cost_us": 0,
            "saving": {"low_us": 0, "high_us": 0, "basis": ""},
            "evidence": [{"label": "", "value": ""}],
            "places": [{"file": "", "line": 0, "function": "", "operator": "", "us": 0}],
            "fix": {"text": "", "code": "", "url": ""},
        }
    ],
    "launch_hotspots": [
        {
            "key": "",
            "kind": "",
            **dict.fromkeys(("launches", "host_us", "kernel_us", "empty_queue_share", "idle_us"), 0),
        }
    ],
}
"""Fields that programs may rely on, each with a value of its type."""


def _assert_like(expected: Any, found: Any, where: str) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in found, f"{where}.{key} is missing"
            _assert_like(value, found[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert found, f"{where} is empty"
        _assert_like(expected[0], found[0], f"{where}[0]")
    elif type(expected) is int:
        assert type(found) in (int, float), where
    else:
        assert type(found) is type(expected), where


def test_json_has_every_field_of_the_contract(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(log / "slow"), "--format", "json"]) == 0
    document = _json(capsys)
    assert list(document) == ["reports", "jobs"]
    _assert_like(CONTRACT, document["reports"][0], "report")


def test_a_directory_is_searched_and_every_trace_reported(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(log), "--format", "json"]) == 0
    assert _runs(_json(capsys)) == ["nested/busy", "slow"]


def test_a_trace_named_twice_is_reported_once(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(log), str(log), "--format=json"]) == 0
    assert len(_json(capsys)["reports"]) == 2


def test_only_one_run(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(log), "--run", "nested/busy", "--format", "json"]) == 0
    assert _runs(_json(capsys)) == ["nested/busy"]
    assert main(["diagnose", str(log), "--run", "other"]) == 2
    assert "nested/busy, slow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "beginning"),
    [
        ("text", "slow · host_1"),
        ("markdown", "## slow"),
        ("html", "<!doctype html>"),
        ("json", '{"reports":[{'),
    ],
)
def test_every_format_on_standard_output_and_in_a_file(
    form: str, beginning: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(log / "slow"), "--run", ".", "--format", form]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    if form != "text":
        assert printed.out.startswith(beginning.replace("slow", "host"))
    out = tmp_path / "out"
    assert main(["diagnose", str(log / "slow"), "-o", str(out), "--format", form]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text(encoding="utf-8") == printed.out


@pytest.mark.parametrize(
    ("columns", "width"),
    [("70", 70), ("140", 140), ("", 110), ("0", 110), ("wide", 110), ("9" * 5_000, 9_999)],
)
def test_text_in_a_pipe_is_as_wide_as_the_environment_says(
    columns: str, width: int, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["diagnose", str(log / "slow")]) == 0
    assert len(capsys.readouterr().out.splitlines()[0]) == width


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], 0),
        (["GD101"], 1),
        (["input_pipeline"], 1),
        (["gd301"], 0),
        (["GD301", "GD101"], 1),
        (["GD301,GD101"], 1),
        (["error"], 1),
        (["WARNING"], 1),
    ],
)
def test_fail_on_ids_and_severities(conditions: list[str], status: int, log: Path) -> None:
    arguments = ["diagnose", str(log / "slow")]
    if conditions:
        arguments += ["--fail-on", *conditions]
    assert main(arguments) == status


def test_fail_on_error_is_not_met_by_a_warning(log: Path) -> None:
    busy = str(log / "nested")
    assert main(["diagnose", busy, "--fail-on", "error"]) == 0


def test_fail_on_may_be_repeated_and_come_before_the_path(log: Path) -> None:
    slow = str(log / "slow")
    assert main(["diagnose", "--fail-on", "GD301", "--fail-on", "GD101", "--", slow]) == 1
    assert main(["diagnose", "--fail-on", "GD101", slow]) == 1
    assert main(["diagnose", "--fail-on", "GD301", "--quiet", slow]) == 0


def test_an_unknown_fail_on_condition_is_invalid_usage(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(log), "--fail-on", "GD999"]) == 2
    shown = capsys.readouterr()
    assert "GD999" in shown.err
    assert "warning" in shown.err
    assert shown.out == ""


def test_a_missing_path_is_invalid_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose"]) == 2
    assert "PATH" in capsys.readouterr().err


def test_each_bad_file_gives_one_line_and_the_rest_is_read(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"empty": b"", "text": b"hello", "other": b'{"a": 1}', "cut": b'{"traceEvents": ['}
    for name, content in bad.items():
        (log / f"{name}.pt.trace.json").write_bytes(content)
    assert main(["diagnose", str(log), "--format", "json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert {"nested/busy", "slow"} <= set(_runs(document))
    errors = document["errors"]
    assert {os.path.basename(error["where"]) for error in errors} >= {
        "empty.pt.trace.json",
        "text.pt.trace.json",
    }
    assert all(set(error) == {"what", "where", "remedy"} and error["what"] for error in errors)
    assert len(shown.err.splitlines()) == len(errors)
    assert "Traceback" not in shown.err


def test_a_bug_in_one_file_costs_only_its_own_report(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(file: TraceFile, progress: Progress) -> Facts:
        if "nested" in file.path:
            raise KeyError("secret")
        return read_facts(file, progress)

    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", broken)
    assert main(["diagnose", str(log), "--format", "json", "--fail-on", "info"]) == 3
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert _runs(document) == ["slow"]
    [error] = document["errors"]
    assert "KeyError in test_diagnose.py:" in error["what"]
    assert "nested" in error["where"]
    assert "report this bug" in error["remedy"]
    assert len(shown.err.splitlines()) == 1
    assert "secret" not in shown.err


def test_a_bug_in_what_is_said_of_a_job_costs_no_report(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr("tb_gpudiag.jobs.report.job_report.build_jobs", broken)
    assert main(["diagnose", str(log), "--format", "json"]) == 3
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert sorted(_runs(document)) == ["nested/busy", "slow"]
    assert "KeyError in test_diagnose.py:" in document["errors"][0]["what"]
    assert "secret" not in shown.err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "No more processes or threads can be started"),
        (BlockingIOError(errno.EAGAIN, "fork"), "No more processes or threads can be started"),
    ],
)
def test_a_file_that_needs_more_than_there_is_costs_only_its_own_report(
    error: Exception,
    said: str,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def large(file: TraceFile, progress: Progress) -> Facts:
        if "nested" in file.path:
            raise error
        return read_facts(file, progress)

    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", large)
    assert main(["diagnose", str(log), "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert _runs(json.loads(shown.out)) == ["slow"]
    assert said in shown.err


def test_a_rule_that_crashes_exits_with_3_and_the_report_is_written(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("xyzzy")

    monkeypatch.setattr("tb_gpudiag.rules.idle.input_pipeline.lost_time", crash)
    assert main(["diagnose", str(log), "--format", "json"]) == 3
    shown = capsys.readouterr()
    report = json.loads(shown.out)["reports"][0]
    (unchecked,) = [rule for rule in report["unchecked"] if rule["rule"] == "GD101"]
    assert unchecked["defect"] is True
    assert "xyzzy" not in shown.out


def test_a_name_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\x1b[2J\nb\u202ec.pt.trace.json").write_bytes(b"nope")
    assert main(["diagnose", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert "a\ufffd[2J b\ufffdc.pt.trace.json" in shown


def test_nothing_to_read_exits_with_2_and_still_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pt.trace.json").write_bytes(b"nope")
    assert main(["diagnose", str(tmp_path), "--format", "json"]) == 2
    document = _json(capsys)
    assert document["reports"] == []
    assert len(document["errors"]) == 1
    for missing in (tmp_path / "missing", tmp_path / "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        assert main(["diagnose", str(missing)]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert str(missing) in shown.err


def test_a_file_is_written_completely_or_not_at_all(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        assert main(["diagnose", str(log), "--format", "html", "-o", str(out)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "report.html"]


@pytest.mark.parametrize("name", ["a.pt.trace.json", "renamed.txt", "snapshot.bin", "base.sqlite", "base.db"])
def test_a_report_replaces_no_recording(
    name: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `-o *.json`, a shell makes `-o FIRST.json SECOND.json`."""
    first, trace = tmp_path / name, next(log.glob("slow/*"))
    if name == "snapshot.bin":
        SnapshotBuilder().write(tmp_path).rename(first)
    elif name.startswith("base"):
        first.write_bytes(MAGIC + bytes(100))
    else:
        first.write_bytes(trace.read_bytes())
    before = first.read_bytes()
    for kind in ("json", "text"):
        assert main(["diagnose", str(trace), "--format", kind, "-o", str(first)]) == 2
        assert "never overwritten" in capsys.readouterr().err
    assert main(["sql", str(trace), "SELECT 1", "--format", "arrow", "-o", str(first)]) == 2
    assert first.read_bytes() == before


def test_a_report_replaces_one_of_before(log: Path, tmp_path: Path) -> None:
    for kind in ("text", "json", "html", "markdown"):
        for _ in range(2):
            assert main(["diagnose", str(log), "--format", kind, "-o", str(tmp_path / f"x.{kind}")]) == 0


def test_what_others_write_to_the_same_file_is_left_alone(log: Path, tmp_path: Path) -> None:
    """Processes in two containers may have the same number."""
    theirs = tmp_path / f".report.json.{os.getpid()}.tmp"
    theirs.write_text("unfinished")
    assert main(["diagnose", str(log), "--format", "json", "-o", str(tmp_path / "report.json")]) == 0
    assert theirs.read_text() == "unfinished"


def test_odd_names_of_the_output(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longest = tmp_path / ("x" * 255)
    assert main(["diagnose", str(log), "-o", str(longest)]) == 0
    assert longest.stat().st_size
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for name, number in ((circle, errno.ELOOP), (tmp_path / ("x" * 256), errno.ENAMETOOLONG)):
        assert main(["diagnose", str(log), "-o", str(name)]) == 2
        assert f"cannot be written: {os.strerror(number)}" in capsys.readouterr().err


def test_a_link_stays_a_link(log: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert main(["diagnose", str(log), "--format", "json", "-o", str(link)]) == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["reports"]


def test_a_device_is_not_replaced(log: Path) -> None:
    assert main(["diagnose", str(log), "-o", os.devnull]) == 0
    assert not os.path.isfile(os.devnull)


def test_a_missing_folder_is_an_error(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(log), "-o", str(tmp_path / "no" / "out")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_progress_is_shown_only_on_a_terminal_and_not_with_quiet(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(log)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")  # a dumb one moves no bar
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["diagnose", str(log), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["diagnose", str(log)]) == 0
    assert "%" in capsys.readouterr().err


def test_a_memory_snapshot_is_diagnosed_alone_and_with_traces(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 21)
    snapshot.allocate(1 << 20, at=1, stack=["train.py(3): main"])
    path = snapshot.write(log / "slow")
    assert main(["diagnose", str(log), "--format", "json"]) == 0
    kinds = {report["trace"]["worker"]: report["trace"]["kind"] for report in _json(capsys)["reports"]}
    assert kinds.pop("dump_snapshot") == "snapshot"
    assert set(kinds.values()) == {"trace"}
    renamed = path.rename(path.with_name("memory.bin"))
    for form in ("text", "markdown", "html"):
        assert main(["diagnose", str(renamed), "--format", form]) == 0
        assert "1 MiB" in plain(capsys.readouterr().out)
    assert main(["diagnose", str(renamed), "--fail-on", "GD101"]) == 0


def test_a_pickle_that_builds_objects_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "was here"
    path = tmp_path / "dump_snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": mark}))  # a Path is an object
    assert main(["diagnose", str(path), "--format", "json"]) == 2
    output = capsys.readouterr()
    assert "builds objects" in output.err
    assert str(path) in output.err
    assert json.loads(output.out)["errors"][0]["remedy"]


def test_a_log_of_torch_compile_is_read_from_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = TraceBuilder()
    main_thread = trace.thread()
    for step in (0, 1):
        main_thread.step(step, at=step * 1_000, us=1000)
        main_thread.op("_compile.compile_inner (dynamo_timed)", at=step * 1_000 + 10, us=900)
        main_thread.op(f"Torch-Compiled Region: 3/{step + 1}", at=step * 1_000 + 920, us=40)
    path = str(trace.write(tmp_path / "log"))
    made = CompileLogBuilder()
    made.artifact("recompile_reasons", "3/2", "3/1: k == 1")
    made.metrics("3/2", "forward", "model.py", 12, start_ns=EPOCH_NS + 1_010_000, us=900)
    elsewhere = made.write(tmp_path / "elsewhere")
    assert main(["diagnose", path]) == 0
    assert "did not hold" not in capsys.readouterr().out
    for named in (elsewhere, elsewhere.parent):
        assert main(["diagnose", path, "--torch-trace", str(named), "--full"]) == 0
        assert "“k == 1” did not hold" in plain(capsys.readouterr().out)
    assert main(["diagnose", path, "--torch-trace", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_the_capture_of_a_graph_names_its_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay, capture = TraceBuilder(), TraceBuilder()
    replay.thread().graph_launch([("gemm", 30, 500)], at=0, us=20, call="hipGraphLaunch")
    main_thread = capture.thread()
    main_thread.call("hipStreamBeginCapture", at=0, us=5)
    main_thread.op("aten::mm", at=10, us=40)
    main_thread.captured("gemm", at=20, us=5)
    main_thread.call("hipStreamEndCapture", at=60, us=5)
    path, named = (str(one.write(tmp_path / name)) for one, name in ((replay, "log"), (capture, "elsewhere")))
    assert main(["diagnose", path]) == 0
    assert "Kernels in graphs" not in capsys.readouterr().out
    assert main(["diagnose", path, "--capture", named]) == 0
    assert "Kernels in graphs: 100% of 1 have their operators" in plain(capsys.readouterr().out)
    assert main(["diagnose", path, "--capture", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
