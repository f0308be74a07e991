"""AnalysisQueue: limited in number, time and memory, stopped when nobody asks or when the parent exits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tb_gpudiag.errors import Defect, LimitReached, NotATrace, ProcessFailed
from tb_gpudiag.service.analyses import analysis_queue, worker_pool
from tb_gpudiag.service.analyses.analysis_queue import MODULE, AnalysisQueue
from tb_gpudiag.service.analyses.task import Pending, Task
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.processes import child
from tb_gpudiag.service.processes.process_setup import worker_environment
from tb_gpudiag.service.settings import MIB, Settings
from tb_gpudiag.trace.files.source import WAITING_FOR_STORE
from tests.service.helpers import FAKE_WORKER, eventually, hasten, is_alive, trace_file, write_trace

pytestmark = pytest.mark.slow  # each test starts processes and waits for them


class Desk:
    """AnalysisQueue with their own cache, and a list of the processes started."""

    def __init__(self, folder: Path, settings: Settings, module: str = FAKE_WORKER) -> None:
        self.folder = folder
        self.cache = Cache(settings.cache_directory, settings.cache_bytes)
        self.on_ready: Callable[[], None] = lambda: None
        self.analyses = AnalysisQueue(
            settings, self.cache, module=module, on_ready=lambda key, entry: self.on_ready()
        )

    def ask(self, name: str, text: str = "fine") -> Pending:
        path = self.folder / f"{name}.pt.trace.json"
        if not path.exists():
            write_trace(self.folder, name, text)
        return self.analyses.ask(name, Task(trace_file(path)))

    def failure(self, name: str, text: str) -> Pending:
        return eventually(lambda: state if (state := self.ask(name, text)).state == "failed" else None)

    def pid(self, name: str) -> int:
        """Wait for the process of this trace, and return its id."""
        eventually(lambda: self.ask(name, "hang").stage == "working", f"{name} works")
        for line in self.starts():
            pid, file = line.split()
            if file.startswith(f"{name}."):
                found = int(pid)
        return found

    def starts(self) -> list[str]:
        path = Path(os.environ["GPUDIAG_TEST_STARTS"])
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    hasten(monkeypatch)
    monkeypatch.setenv("GPUDIAG_TEST_STARTS", str(tmp_path / "starts"))
    desks = []

    def make(module: str = FAKE_WORKER, **settings: Any) -> Desk:
        made = Desk(tmp_path / "log", Settings(tmp_path / "cache", **settings), module)
        desks.append(made)
        return made

    yield make
    for made in desks:
        made.analyses.close()


def test_the_result_of_an_analysis_is_in_the_cache(desk: Callable[..., Desk]) -> None:
    here = desk()
    assert here.ask("a").state == "queued"
    entry = eventually(lambda: here.cache.find("a"))
    assert entry.summary == {"sentence": "fine"}
    assert entry.arrays()["x"].sum() == 999 * 500
    eventually(lambda: here.analyses.state("a") is None)


def analyzed(here: Desk, *texts: str) -> list[str]:
    """Have files with these texts analyzed, one after the other, and return the processes that began one."""
    for name, text in zip("abcd", texts, strict=False):
        here.ask(name, text)
        eventually(partial(here.cache.find, name))
        eventually(lambda: here.analyses.counts()["running"] == 0)

    return [line.split()[0] for line in here.starts()]


def test_one_process_does_one_analysis_after_another_until_it_is_idle(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "IDLE_S", 1.0)
    first, second = analyzed(desk(), "fine", "spoils nothing")
    assert first == second
    eventually(lambda: not is_alive(int(first)))


def test_who_crashes_after_another_file_is_tried_in_a_process_of_its_own(desk: Callable[..., Desk]) -> None:
    here = desk()
    first, again, own = analyzed(here, "fine", "spoiled")
    assert first == again != own
    assert here.cache.note == ""  # the half draft is not in the way


def test_a_process_that_keeps_memory_is_replaced(desk: Callable[..., Desk]) -> None:
    first, second = analyzed(desk(memory_limit_bytes=1200 * MIB), "large", "fine")
    assert first != second


def test_a_worker_is_kept_for_what_somebody_waits_for(desk: Callable[..., Desk]) -> None:
    here = desk()
    for name in "ab":
        path = write_trace(here.folder, name, "hang")
        here.analyses.ask(name, Task(trace_file(path)), awaited=False)
    eventually(lambda: here.analyses.counts()["running"] == 1)
    here.pid("c")
    assert here.analyses.counts() == {"queued": 1, "running": 2, "failed": 0}


def test_progress_and_stage_are_reported(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.ask("a", "hang")
    state = eventually(lambda: state if (state := here.ask("a")).stage == "working" else None)
    assert (state.state, state.progress) == ("running", 0.5)


def test_at_most_two_run_and_the_others_know_their_place(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.pid("a")
    here.pid("b")
    assert here.ask("c", "hang").stage == "1st of 1 in the queue"
    assert here.ask("d", "hang").stage == "2nd of 2 in the queue"
    assert here.analyses.counts() == {"queued": 2, "running": 2, "failed": 0}
    here.analyses.cancel("a")
    eventually(lambda: (state := here.analyses.state("c")) is not None and state.state == "running")
    assert here.ask("d").stage == "1st of 1 in the queue"


def test_what_no_page_shows_any_more_goes_last(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "VISIBLE_S", 0.0)
    here = desk(workers=1)
    here.pid("a")
    here.ask("c", "hang")
    assert here.ask("d", "hang").stage == "1st of 2 in the queue"
    assert here.ask("c").stage == "1st of 2 in the queue"


def test_the_queue_says_how_long_it_takes(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    here = desk(workers=1)
    now_s = [0.0]
    monkeypatch.setattr(analysis_queue, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    here.on_ready = lambda: now_s.insert(0, 50.0)
    here.ask("a")
    eventually(lambda: here.analyses.state("a") is None)
    here.pid("b")
    assert here.ask("c", "hang").stage == "1st of 1 in the queue, about 50 s"
    assert here.ask("d", "hang").stage == "2nd of 2 in the queue, about 2 min"


def test_only_what_somebody_waits_for_runs_beside_other_programs(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "NICE", 3)
    here = desk()
    pids = {}

    def works(name: str) -> bool:
        return (state := here.analyses.state(name)) is not None and state.stage == "working"

    for name, awaited in (("a", False), ("b", True)):
        write_trace(here.folder, name, "hang")
        task = Task(trace_file(here.folder / f"{name}.pt.trace.json"))
        here.analyses.ask(name, task, awaited=awaited)
        eventually(partial(works, name))
        pids[name] = int(here.starts()[-1].split()[0])
    lower = {name: os.getpriority(os.PRIO_PROCESS, pid) - os.nice(0) for name, pid in pids.items()}
    assert lower == {"a": 3, "b": 0}


def test_canceling_kills_the_process_and_leaves_nothing(desk: Callable[..., Desk], tmp_path: Path) -> None:
    here = desk()
    pid = here.pid("a")
    assert here.analyses.cancel("a")
    eventually(lambda: not is_alive(pid))
    assert here.analyses.state("a") is None
    assert not here.analyses.cancel("a")
    eventually(lambda: not list((tmp_path / "cache" / "drafts").iterdir()))


def test_a_job_that_nobody_asks_about_is_stopped(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = desk()
    pid = here.pid("a")
    monkeypatch.setattr(analysis_queue, "ABANDONED_AFTER_S", 0.2)
    eventually(lambda: not is_alive(pid))
    eventually(lambda: here.analyses.state("a") is None)


@pytest.mark.parametrize("word", ["hang", "stuck"])
def test_a_process_over_its_time_limit_is_stopped(desk: Callable[..., Desk], word: str) -> None:
    here = desk(time_limit_s=0.7)
    error = here.failure("a", word).error
    assert isinstance(error, LimitReached)
    assert "0.7 s" in error.what
    assert error.where.endswith("a.pt.trace.json")
    assert "GPUDIAG_TIME_LIMIT_S" in error.remedy
    eventually(lambda: not any(is_alive(int(line.split()[0])) for line in here.starts()))


@pytest.mark.parametrize("word", ["eat", "gulp"])
def test_a_process_over_its_memory_limit_is_stopped(desk: Callable[..., Desk], word: str) -> None:
    error = desk(memory_limit_bytes=400 * MIB).failure("a", word).error
    assert isinstance(error, LimitReached)
    assert "memory limit of 400 MB" in error.what
    assert "GPUDIAG_MEMORY_LIMIT_MB" in error.remedy


def test_a_process_that_crashes_is_a_clear_failure(desk: Callable[..., Desk], tmp_path: Path) -> None:
    error = desk().failure("a", "crash").error
    assert isinstance(error, ProcessFailed)
    assert f"signal {int(signal.SIGSEGV)}" in error.what
    assert error.remedy
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


def test_a_process_that_is_killed_from_outside_is_a_clear_failure(desk: Callable[..., Desk]) -> None:
    here = desk()
    os.kill(here.pid("a"), signal.SIGKILL)
    error = here.failure("a", "hang").error
    assert isinstance(error, ProcessFailed)
    assert "signal 9" in error.what


def test_the_readers_error_arrives_unchanged(desk: Callable[..., Desk]) -> None:
    error = desk().failure("a", "refuse").error
    assert isinstance(error, NotATrace)
    assert (error.what, error.remedy) == ("no trace", "give another")


def test_a_bug_is_reported_by_its_place_without_text_of_the_trace(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    error = desk().failure("a", "defect").error
    assert isinstance(error, Defect)
    assert "KeyError in fake_worker.py:" in error.what
    eventually(lambda: "fake_worker.py" in caplog.text, "the log says where")
    assert "secret" not in str(error) + caplog.text  # the message of the exception


def test_output_of_a_library_is_not_a_message(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.ask("a", "chatter")
    assert eventually(lambda: here.cache.find("a")).summary == {"sentence": "chatter"}


def test_only_failures_that_are_not_about_the_file_are_retried(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = desk()
    here.failure("bad", "refuse")
    here.failure("faulty", "defect")
    here.failure("large", "gulp")
    here.failure("unlucky", "crash")
    write_trace(here.folder, "unlucky", "fine")
    monkeypatch.setattr(analysis_queue, "RETRY_AFTER_S", 0.0)
    eventually(lambda: here.ask("unlucky") and here.cache.find("unlucky"))
    for name in ("bad", "faulty", "large"):
        assert here.ask(name).state == "failed"
        assert sum(f"{name}." in line for line in here.starts()) == 1


def test_a_process_that_crashes_again_and_again_is_given_up(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "RETRY_AFTER_S", 0.0)
    monkeypatch.setattr(analysis_queue, "RETRY_LATER_S", 0.0)
    here = desk()
    eventually(lambda: here.ask("a", "crash") and len(here.starts()) == analysis_queue.MOST_CRASHES)
    here.failure("a", "crash")
    for _ in range(5):
        assert here.ask("a").state == "failed"
    assert len(here.starts()) == analysis_queue.MOST_CRASHES


def test_a_store_that_does_not_answer_is_asked_again(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "RETRY_AFTER_S", 0.5)
    here = desk(workers=1)
    state = eventually(lambda: state if (state := here.ask("a", "silent")).stage else None)
    state = eventually(lambda: state if "tried again" in (state := here.ask("a")).stage else None)
    assert state.state == "queued"
    assert state.stage == (
        f"{here.folder}/a.pt.trace.json: the store does not answer (check the connection). "
        "It is tried again after 0.5 s."
    )
    here.ask("b")
    eventually(lambda: here.cache.find("b"), "others go on")
    write_trace(here.folder, "a")
    eventually(lambda: here.ask("a") and here.cache.find("a"))


@pytest.mark.slow
def test_waiting_for_another_process_is_not_in_the_time_limit(desk: Callable[..., Desk]) -> None:
    here = desk(time_limit_s=8.0)
    here.ask("a", "patient")

    def done() -> bool:
        state = here.analyses.state("a")
        assert state is None or state.state != "failed", state
        return here.cache.find("a") is not None

    eventually(done)


def test_an_analysis_that_waits_for_a_store_lets_others_run(desk: Callable[..., Desk]) -> None:
    here = desk(workers=1)
    eventually(lambda: here.ask("a", "stalled").stage == WAITING_FOR_STORE)
    here.ask("b")
    eventually(lambda: here.cache.find("b"))
    eventually(lambda: here.ask("c", "stalled").stage == WAITING_FOR_STORE)
    here.ask("d")
    assert here.analyses.counts() == {"queued": 1, "running": analysis_queue.MOST_PER_WORKER, "failed": 0}
    here.analyses.cancel("a")
    eventually(lambda: here.cache.find("d"))


def test_a_store_that_stalls_until_the_time_limit_is_asked_again(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = desk(time_limit_s=8.5)
    state = eventually(
        lambda: state if "time limit of 8.5 s" in (state := here.ask("a", "stalled")).stage else None
    )
    assert (state.state, state.error) == ("queued", None)
    assert "GPUDIAG_TIME_LIMIT_S" in state.stage
    assert here.analyses.cancel("a")
    assert here.analyses.counts() == {"queued": 0, "running": 0, "failed": 0}


class Clock:
    """Time passes only if the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self._now_s)

    def go_on(self, seconds: float) -> None:
        self._now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PROGRAM", ("/nonexistent/python",))


@pytest.mark.usefixtures("no_python")
def test_the_wait_before_a_retry_grows(desk: Callable[..., Desk], clock: Clock) -> None:
    """A full disk may be freed at any time."""
    here = desk()
    here.failure("a", "fine")
    for wait_s in (analysis_queue.RETRY_AFTER_S, analysis_queue.RETRY_LATER_S, analysis_queue.RETRY_LATER_S):
        clock.go_on(wait_s - 1)
        assert here.ask("a").state == "failed"
        clock.go_on(2)
        assert here.ask("a").state == "queued"
        here.failure("a", "fine")


def test_a_file_that_crashes_three_processes_is_not_tried_again(
    desk: Callable[..., Desk], clock: Clock
) -> None:
    here = desk()
    assert "open it again after 20 s" in str(here.failure("a", "crash").error)
    for number in range(2):
        clock.go_on(analysis_queue.RETRY_AFTER_S + 1)
        assert here.ask("a").state == "queued"
        assert ("restart TensorBoard" in str(here.failure("a", "crash").error)) == bool(number)
    clock.go_on(1e9)
    assert here.ask("a").state == "failed"


@pytest.mark.usefixtures("no_python")
def test_a_process_that_cannot_be_started_is_a_clear_failure(desk: Callable[..., Desk]) -> None:
    error = desk().failure("a", "fine").error
    assert isinstance(error, ProcessFailed)
    assert "could be started" in error.what


def test_an_existing_result_is_used(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.ask("a")
    eventually(lambda: here.cache.find("a"))
    eventually(lambda: here.analyses.state("a") is None)
    here.ask("a")
    eventually(lambda: here.analyses.state("a") is None)
    assert len(here.starts()) == 1


def test_without_a_writable_cache_results_are_in_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    (tmp_path / "file").write_text("in the way")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    here = Desk(tmp_path / "log", Settings(tmp_path / "file" / "cache"))
    here.ask("a")
    entry = eventually(lambda: here.cache.find("a"))
    assert entry.path.parents[2] == temporary
    assert entry.path.stat().st_mode & 0o777 == 0o600
    assert "GPUDIAG_CACHE_DIR" in here.cache.note
    here.analyses.close()


def test_without_any_writable_directory_the_analysis_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    here = Desk(tmp_path / "log", Settings(tmp_path / "file" / "cache"))
    error = here.failure("a", "fine").error
    assert isinstance(error, ProcessFailed)
    assert "cannot be saved" in error.what
    assert "GPUDIAG_CACHE_DIR" in error.remedy
    here.analyses.close()


@pytest.mark.parametrize(
    "word",
    [
        "hang",
        pytest.param(
            "stuck", marks=pytest.mark.skipif(sys.platform != "linux", reason="needs a signal of Linux")
        ),
    ],
)
def test_the_worker_exits_with_its_parent(tmp_path: Path, word: str) -> None:
    """The parent is killed, so it cannot stop its workers."""
    write_trace(tmp_path, "a", word)
    script = f"""
        import sys, time
        from pathlib import Path
        from tb_gpudiag.service.caches.cache import Cache
        from tb_gpudiag.service.analyses.analysis_queue import AnalysisQueue
        from tb_gpudiag.service.analyses.task import Task
        from tb_gpudiag.service.settings import Settings
        from tests.service.helpers import trace_file
        analyses = AnalysisQueue(Settings(None), Cache(None), module={FAKE_WORKER!r})
        while True:
            analyses.ask("a", Task(trace_file(Path({str(tmp_path / "a.pt.trace.json")!r}))))
            time.sleep(0.05)
    """
    starts = tmp_path / "starts"
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**worker_environment(), "GPUDIAG_TEST_STARTS": str(starts), "PYTHONSAFEPATH": ""},
        cwd=Path(__file__).parents[2],
    )
    try:
        eventually(lambda: starts.exists() and starts.read_text().endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    eventually(lambda: not is_alive(int(starts.read_text().split()[0])))


def test_the_worker_inherits_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "looking.py").write_text(
        "import os, stat, sys; "
        "bad = [n for n in range(3, 256) if os.path.exists(f'/proc/self/fd/{n}') "
        "and stat.S_ISSOCK(os.fstat(n).st_mode)]; "
        f"open({str(tmp_path / 'found')!r}, 'w').write(str(bad))"
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        os.set_inheritable(listening.fileno(), True)
        here = Desk(tmp_path, Settings(tmp_path / "cache"), "looking")
        here.ask("a")
        eventually(lambda: (tmp_path / "found").exists() and (tmp_path / "found").read_text())
    assert (tmp_path / "found").read_text() == "[]"
    here.analyses.close()


def test_a_module_in_the_working_directory_is_not_mistaken_for_the_standard_library(
    desk: Callable[..., Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "numpy", "tb_gpudiag"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    # It started and read the file.
    assert isinstance(desk(module=MODULE).failure("a", "this is no JSON").error, NotATrace)
