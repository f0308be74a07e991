"""A handler writes recordings whole, diagnoses each, and never disturbs the training."""

from __future__ import annotations

import errno
import gzip
import inspect
import logging
import os
import pickle
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.service.processes import child
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.training import helper
from tb_gpudiag.training.helper import NICE, Helper, HelperAnswer
from tb_gpudiag.training.noting_tensors import NotingTensors
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.rules.stage import healthy
from tests.service.helpers import children, eventually, is_alive
from tests.training.stage import Diagnosed, FakeProfiler, content_of, handler
from tests.with_each import with_each

LOGGER = "tb_gpudiag.training"


@pytest.fixture
def profiler(tmp_path: Path) -> FakeProfiler:
    return FakeProfiler(content_of(slow_loader(), tmp_path))


@pytest.fixture(autouse=True)
def all_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_it_takes_the_arguments_of_torchs_handler() -> None:
    parameters = inspect.signature(tb_gpudiag.DiagnosisHandler).parameters
    assert list(parameters)[:3] == ["dir_name", "worker_name", "use_gzip"]
    assert tb_gpudiag.DiagnosisHandler.__module__.startswith("tb_gpudiag.training")
    with pytest.raises(AttributeError):
        tb_gpudiag.no_such_name  # noqa: B018
    with pytest.raises(ValueError, match="keep"):
        tb_gpudiag.DiagnosisHandler("log", keep=0)


@with_each("url", ["s3://key:secret@bucket/run", Path("s3://bucket/run"), "memory://run"])
def test_a_url_is_refused_before_the_training_begins(url: str | Path) -> None:
    """torch's handler would write to a local folder with the name "s3:"."""
    for arguments in ({"dir_name": url}, {"dir_name": "log", "writer": url}):
        with pytest.raises(ValueError, match="name a local folder") as refused:
            tb_gpudiag.DiagnosisHandler(**arguments)  # type: ignore[arg-type]
        assert "secret" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.usefixtures("diagnosed_in_process")
def test_a_spawned_process_gets_a_handler_of_its_own(
    tmp_path: Path, profiler: FakeProfiler, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    made = tb_gpudiag.DiagnosisHandler(log, "rank0", keep=2, on_diagnosis=print, writer=tmp_path / "events")
    again = pickle.loads(pickle.dumps(made))
    for _ in range(3):
        again(profiler)
    again.close(HANGS_S)
    assert [path.name.split(".")[0] for path in log.iterdir()] == ["rank0"] * 2
    assert 'name: "input_pipeline"' in capsys.readouterr().out
    assert len(list((tmp_path / "events" / "gpudiag").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("diagnosed_in_process")
def test_each_recording_is_diagnosed_and_logged_in_one_line(
    tmp_path: Path, profiler: FakeProfiler, caplog: pytest.LogCaptureFixture
) -> None:
    got, log = Diagnosed(), tmp_path / "log"
    with handler(log, on_diagnosis=got) as made:
        made(profiler)
        made(profiler)
        reports = got.expect(2)
    names = sorted(path.name for path in log.iterdir())
    worker = re.escape(f"{socket.gethostname()}_{os.getpid()}")
    assert len(names) == 2
    assert all(re.fullmatch(rf"{worker}\.\d{{19}}\.pt\.trace\.json", name) for name in names)
    assert [report.findings[0].rule for report in reports] == ["GD101", "GD101"]
    assert [Path(report.trace.path).name for report in reports] == names
    assert got.threads == {"gpudiag-training"}
    found = messages(caplog)
    assert len(found) == 2
    for name, message in zip(names, found, strict=True):
        (line,) = message.splitlines()
        assert line.endswith(f" More: gpudiag diagnose {shlex.quote(str(log / name))}")
        assert "data pipeline limits" in line
        assert "\xa0" not in line
        assert "GD101 input_pipeline" in line
        assert "saves up to" in line


@pytest.mark.usefixtures("diagnosed_in_process")
def test_a_log_says_that_a_recording_contains_credentials(
    tmp_path: Path, profiler: FakeProfiler, caplog: pytest.LogCaptureFixture
) -> None:
    token = b"hf_" + b"a1B2" * 8
    profiler.content = b'{"env": {"HF_TOKEN": "%s"}, ' % token + profiler.content.lstrip()[1:]
    got = Diagnosed()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        made(profiler)
        got.expect(1)
    (message,) = messages(caplog)
    assert "GD907 among them: it contains credentials." in message
    assert token.decode() not in message


@pytest.mark.usefixtures("diagnosed_in_process")
def test_compressed_recordings_with_a_worker_name(tmp_path: Path, profiler: FakeProfiler) -> None:
    got = Diagnosed()
    with handler(tmp_path / "log", worker_name="rank0", use_gzip=True, on_diagnosis=got) as made:
        made(profiler)
        got.expect(1)
    (path,) = (tmp_path / "log").iterdir()
    assert re.fullmatch(r"rank0\.\d+\.pt\.trace\.json\.gz", path.name)
    assert path.read_bytes()[:2] == b"\x1f\x8b"


def test_later_recordings_of_memory_are_noted(
    tmp_path: Path, profiler: FakeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Helper, "ask", lambda *_: HelperAnswer(True, ""))
    vars(profiler).update(profile_memory=True, schedule=lambda _step: None)
    with handler(tmp_path / "log") as made:
        made(profiler)
        first = vars(profiler)["schedule"]
        made(profiler)
    assert isinstance(first, NotingTensors)
    assert vars(profiler)["schedule"] is first


def test_a_recording_appears_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Helper, "ask", lambda *_: HelperAnswer(True, ""))
    log = tmp_path / "log"
    seen: list[object] = []

    class Slow(FakeProfiler):
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_bytes(self.content[: len(self.content) // 2])
            seen.append(find_traces(str(log)).files)
            seen.append([name for name in os.listdir(log) if "tfevents" in name or name.endswith(".json")])
            super().export_chrome_trace(path)

    for use_gzip in (False, True):
        with handler(log, use_gzip=use_gzip) as made:
            made(Slow(content_of(slow_loader(), tmp_path)))
        (found,) = find_traces(str(log)).files
        assert (found.path.endswith(".gz"), os.listdir(log)) == (use_gzip, [Path(found.path).name])
        os.unlink(found.path)
    assert seen == [[], [], [], []]


@pytest.mark.parametrize(
    ("left", "ending", "use_gzip"),
    [
        (b"", "", False),
        (b'{"traceEvents": [', "", False),
        (b"", ".tmp", False),
        (gzip.compress(b""), "", True),
    ],
    ids=["empty", "half", "no name yet", "packed"],
)
def test_a_full_disk_is_logged_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: bytes, ending: str, *, use_gzip: bool
) -> None:
    class Full(FakeProfiler):
        def export_chrome_trace(self, path: str) -> None:
            Path(path + ending).write_bytes(left)
            if left and not use_gzip:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with handler(tmp_path / "log", use_gzip=use_gzip) as made:
        made(Full(b""))
    assert not list((tmp_path / "log").iterdir())
    (message,) = messages(caplog)
    assert "was not written" in message
    assert re.search("No space left|is the disk full", message)


def test_a_thread_that_cannot_start_costs_one_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Helper, "ask", lambda *_: HelperAnswer(True, "done"))

    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with handler(tmp_path / "log") as made:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            made(FakeProfiler(b"{}"))
        made.close(HANGS_S)
        assert made.skipped == 1
        made(FakeProfiler(b"{}"))
    first, second = messages(caplog)
    assert "was not diagnosed: can't start new thread: run `gpudiag diagnose`" in first
    assert second == "gpudiag: done"
    assert len(list((tmp_path / "log").iterdir())) == 2


@pytest.mark.usefixtures("diagnosed_in_process")
def test_a_program_may_go_to_another_directory(
    tmp_path: Path, profiler: FakeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    monkeypatch.chdir(before)
    with handler("log", writer="events") as made:
        monkeypatch.chdir(after)
        made(profiler)
    assert sorted(path.name for path in before.iterdir()) == ["events", "log"]
    assert not list(after.iterdir())


def test_a_folder_that_cannot_be_made_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with handler(tmp_path / "file" / "log") as made:
        made(FakeProfiler(b"{}"))
    assert "Not a directory" in messages(caplog)[0]


@pytest.mark.slow
def test_failures_of_others_do_not_stop_it(
    tmp_path: Path, profiler: FakeProfiler, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken recording, a callback that raises, and a helper that is killed."""
    got, others = Diagnosed(), children()

    def on_diagnosis(report: object) -> None:
        got(report)  # type: ignore[arg-type]
        raise RuntimeError("of the user")

    with handler(tmp_path / "log", on_diagnosis=on_diagnosis) as made:
        made(FakeProfiler(b"not a trace"))
        made(profiler)
        got.expect(1)
        (pid,) = children() - others
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(pid))
        made(profiler)  # a new helper diagnoses it
        got.expect(2)
    found = messages(caplog)
    assert "was not diagnosed" in found[0]
    assert found.count("gpudiag: on_diagnosis failed on " + got.reports[0].trace.path) == 1
    assert len(list((tmp_path / "log").iterdir())) == 3


@pytest.mark.usefixtures("diagnosed_in_process")
def test_a_callback_that_exits_does_not_end_the_diagnoses(
    tmp_path: Path, profiler: FakeProfiler, caplog: pytest.LogCaptureFixture
) -> None:
    got = Diagnosed()

    def on_diagnosis(report: object) -> None:
        got(report)  # type: ignore[arg-type]
        sys.exit("of the user")

    with handler(tmp_path / "log", on_diagnosis=on_diagnosis) as made:
        for count in (1, 2):
            made(profiler)
            got.expect(count)
    assert sum("on_diagnosis failed" in message for message in messages(caplog)) == 2


@pytest.mark.slow
def test_the_helper_ends_when_it_is_idle_and_starts_again(
    tmp_path: Path, profiler: FakeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "IDLE_S", 0.05)
    got, others = Diagnosed(), children()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        for count in (1, 2):
            made(profiler)
            got.expect(count)
            eventually(lambda: not children() - others)
            eventually(lambda: not any(t.name == "gpudiag-training" for t in threading.enumerate()))


class Stalled:
    """Stands in for the helper: answers when it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.release = threading.Event()
        monkeypatch.setattr(Helper, "ask", self.ask)
        monkeypatch.setattr(Helper, "kill", self.release.set)

    def ask(self, request: dict[str, str], _limit_s: float) -> HelperAnswer:
        self.asked.append(request["where"])
        self.release.wait(60)
        return HelperAnswer(True, "done")


def test_a_slow_diagnosis_costs_the_oldest_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stalled = Stalled(monkeypatch)
    with handler(tmp_path / "log") as made:
        made(FakeProfiler(b"{}"))
        eventually(lambda: stalled.asked)
        for _ in range(helper.MOST_WAITING + 3):
            made(FakeProfiler(b"{}"))
        assert made.skipped == 3
        stalled.release.set()
    written = sorted(str(path) for path in (tmp_path / "log").iterdir())
    assert stalled.asked == [written[0], *written[4:]]
    said = [re.findall(r"(\d+) not diagnosed", message) for message in messages(caplog)]
    assert [count for count in said if count] == [["1"], ["2"]]


def test_closing_takes_no_longer_than_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stalled = Stalled(monkeypatch)
    with handler(tmp_path / "log") as made:
        for _ in range(3):
            made(FakeProfiler(b"{}"))
        eventually(lambda: stalled.asked)
        made.close(0.05)
        assert made.skipped == 3
        assert "the last 3 recordings were not diagnosed" in messages(caplog)[-1]
        made.close(0.05)  # nothing to wait for
        made(FakeProfiler(b"{}"))
        eventually(lambda: messages(caplog)[-1] == "gpudiag: done")
    assert len(stalled.asked) == 2


def test_a_recording_that_others_delete_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stalled = Stalled(monkeypatch)
    monkeypatch.setattr(
        Helper, "ask", lambda self, *request: (stalled.ask(*request), HelperAnswer(False, "gone"))[1]
    )
    with handler(tmp_path / "log") as made:
        made(FakeProfiler(b"{}"))
        eventually(lambda: stalled.asked)
        (first,) = (tmp_path / "log").iterdir()
        made(FakeProfiler(b"{}"))
        first.unlink()
        stalled.release.set()
    assert made.skipped == 1
    assert [message for message in messages(caplog) if "gone" in message] == [messages(caplog)[-1]]


@pytest.mark.slow
@pytest.mark.usefixtures("diagnosed_in_process")
def test_recordings_with_findings_stay_longest(tmp_path: Path, profiler: FakeProfiler) -> None:
    got = Diagnosed()
    nothing_wrong = FakeProfiler(healthy().bytes())
    with handler(tmp_path / "log", on_diagnosis=got, keep=2) as made:
        made(profiler)
        got.expect(1)
        for _ in range(3):
            before = len(got.reports) + made.skipped
            made(nothing_wrong)
            eventually(lambda before=before: len(got.reports) + made.skipped > before)  # type: ignore[misc]
        kept = sorted((tmp_path / "log").iterdir())
    assert len(kept) == 2
    assert kept[0].read_bytes() == profiler.content


@pytest.mark.slow
def test_the_helper_does_not_load_torch(tmp_path: Path, profiler: FakeProfiler) -> None:
    got, others = Diagnosed(), children()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        made(profiler)
        got.expect(1)
        (pid,) = children() - others
        assert not re.search(r"libtorch|libcuda|libc10", Path(f"/proc/{pid}/maps").read_text())
    assert not is_alive(pid)


@pytest.mark.slow
def test_the_helper_has_a_low_priority(tmp_path: Path, profiler: FakeProfiler) -> None:
    made, others = tb_gpudiag.DiagnosisHandler(tmp_path / "log"), children()
    made(profiler)
    (pid,) = eventually(lambda: children() - others)
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, pid) == lowered())
    made.close(0.01)
    eventually(lambda: not is_alive(pid))


def lowered() -> int:
    """The priority of a helper: lower than the training's own, which may be low itself."""
    return min(os.nice(0) + NICE, 19)


@pytest.mark.slow
def test_the_helper_hurries_when_the_training_is_over() -> None:
    helper, others = Helper("tb_gpudiag.training.diagnosing"), children()

    def priority() -> int:
        assert not helper.ask({"kind": "diagnose", "where": "/missing"}, 60).ok
        (pid,) = children() - others
        return os.getpriority(os.PRIO_PROCESS, pid)

    assert priority() == lowered()
    helper.hurry()
    assert priority() == os.getpriority(os.PRIO_PROCESS, 0)
    helper.stop()
    assert priority() == lowered()
    helper.stop()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["training.diagnosis_handler", "service.processes.serving"])
def test_the_training_and_a_helper_that_starts_import_little(module: str) -> None:
    heavy = "{'numpy', 'pyarrow', 'google', 'fsspec', 'torch', 'tensorboard', 'rich'}"
    code = f"import sys, tb_gpudiag.{module}; print(*(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_a_helper_that_ends_is_reported_with_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = "import os, sys, time; os.read(0, 1); os.close(1); time.sleep(0.1); os._exit(3)"
    monkeypatch.setattr(child, "PROGRAM", (sys.executable, "-c", program))
    made, others = tb_gpudiag.DiagnosisHandler(tmp_path / "log"), children()
    made(FakeProfiler(b"{}"))
    made.close(HANGS_S)
    assert messages(caplog)[0].endswith("was not diagnosed: the helper process ended (exit code 3)")
    assert children() == others
