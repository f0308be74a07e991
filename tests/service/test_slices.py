"""Slices are cut in a process of their own. Whatever happens to it, requests are answered."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tb_gpudiag.errors import Defect, GpudiagError, JobFailed, UsageError
from tb_gpudiag.service.analyses.protocol import Task
from tb_gpudiag.service.analyses.worker import analyze
from tb_gpudiag.service.caches.cache_entry import CorruptEntry
from tb_gpudiag.service.processes.child_process import worker_environment
from tb_gpudiag.service.slices import cutter, slices
from tb_gpudiag.service.slices.cutter import Cutter
from tb_gpudiag.service.slices.slice_messages import Answer, Question
from tb_gpudiag.service.slices.slices import COMMAND, Busy, Slices
from tests.builder import TraceBuilder
from tests.service.helpers import eventually, trace_file

pytestmark = pytest.mark.slow  # each test starts processes

WHOLE = (None, None, 1024)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """An entry of a small trace."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.alloc(1024, at=12)
    main.launch("add", at=305, us=5, runs_at=315, runs_us=50)
    file = trace_file(trace.write(tmp_path))
    task = Task(file, [str(tmp_path / "entry")], memory_limit_bytes=1 << 40, parent=0)
    return analyze(task, lambda share, stage: None)


@pytest.fixture
def start() -> Iterator[Callable[..., Slices]]:
    started = []

    def make(*command: str) -> Slices:
        started.append(Slices(command))
        return started[-1]

    yield make
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def real() -> Iterator[Slices]:
    """Slices from the real process, which starts once for all tests. A cut off entry may end it."""
    made = Slices(COMMAND)
    yield made
    made.close()


def shown(content: bytes) -> Any:
    return json.loads(gzip.decompress(content))


def acting(folder: Path, act: str) -> tuple[str, ...]:
    """Command of a process that acts like this on each question. `turn` counts its starts, from 1."""
    script = f"""
        import os, sys, time
        from tb_gpudiag.service.slices.slice_messages import Answer, Question
        with open({str(folder / "starts")!r}, "a+") as file:
            print("start", file=file, flush=True)
            file.seek(0)
            turn = len(file.readlines())
        while line := sys.stdin.buffer.readline():
            question = Question.from_line(line)
            {act}
    """
    return sys.executable, "-c", textwrap.dedent(script)


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


def test_each_kind_of_slice_is_cut(real: Slices, entry: Path) -> None:
    timeline = shown(real.get(Question(str(entry), "timeline", WHOLE)))
    assert [lane["kind"] for lane in timeline["lanes"]] == ["gaps", "stream", "queue", "thread"]
    memory = shown(real.get(Question(str(entry), "memory", (0, *WHOLE))))
    assert memory["allocated"]["high"] == [0, 1024]
    assert shown(real.get(Question(str(entry), "gap", (0, 0))))["state"] == "ready"


def test_an_error_of_the_request_arrives_unchanged(real: Slices, entry: Path) -> None:
    with pytest.raises(UsageError, match="GPU 7 has no gap 1"):
        real.get(Question(str(entry), "gap", (7, 1)))


def test_a_slice_that_is_asked_for_again_is_not_cut_again(
    start: Callable[..., Slices], tmp_path: Path
) -> None:
    here = start(*acting(tmp_path, "Answer('ready', str(time.perf_counter()).encode()).write(1)"))
    first = here.get(Question("a", "timeline", WHOLE))
    other = here.get(Question("b", "timeline", WHOLE))
    assert here.get(Question("a", "timeline", WHOLE)) == first != other


def test_slices_that_are_kept_are_bounded(
    start: Callable[..., Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "KEPT_BYTES", 250)
    here = start(*acting(tmp_path, "Answer('ready', os.urandom(100)).write(1)"))
    first, second, third = (here.get(Question(name, "timeline", ())) for name in "abc")
    assert here.get(Question("c", "timeline", ())) == third
    assert here.get(Question("b", "timeline", ())) == second
    assert here.get(Question("a", "timeline", ())) != first


@pytest.mark.parametrize("place", [0, 10, 5000, -1])
def test_an_entry_that_is_cut_off_while_it_is_open_is_corrupt(real: Slices, entry: Path, place: int) -> None:
    real.get(Question(str(entry), "timeline", WHOLE))
    os.truncate(entry, place % entry.stat().st_size)
    for part in range(3):
        with pytest.raises(CorruptEntry):
            real.get(Question(str(entry), "timeline", (part, part + 100, 512)))


def test_an_entry_that_is_gone_is_corrupt(real: Slices, entry: Path) -> None:
    real.get(Question(str(entry), "timeline", WHOLE))
    entry.unlink()
    with pytest.raises(CorruptEntry):
        real.get(Question(str(entry), "timeline", (1, 2, 512)))


def test_a_process_that_dies_is_replaced_and_asked_again(
    start: Callable[..., Slices], tmp_path: Path
) -> None:
    """As from SIGBUS, when a mapped file is cut off between the check and the reading."""
    act = "os.kill(os.getpid(), 7) if turn == 1 else Answer('corrupt').write(1)"
    here = start(*acting(tmp_path, act))
    with pytest.raises(CorruptEntry):
        here.get(Question("a", "timeline", WHOLE))
    assert starts(tmp_path) == 2


@pytest.mark.parametrize("act", ["os._exit(1)", "os.write(1, b'half')"])
def test_a_process_that_always_dies_is_a_clear_failure(
    start: Callable[..., Slices], tmp_path: Path, act: str
) -> None:
    here = start(*acting(tmp_path, f"{act}; os._exit(1)"))
    with pytest.raises(JobFailed, match="ended unexpectedly"):
        here.get(Question("a", "timeline", WHOLE))
    assert starts(tmp_path) == 2


def test_a_process_that_hangs_is_stopped(
    start: Callable[..., Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "ANSWER_WITHIN_S", 1.0)
    here = start(*acting(tmp_path, "time.sleep(600)"))
    with pytest.raises(JobFailed, match="more than 1 s"):
        here.get(Question("a", "timeline", WHOLE))


def test_a_command_that_cannot_be_started_is_a_clear_failure(start: Callable[..., Slices]) -> None:
    with pytest.raises(JobFailed):
        start("/nonexistent/python").get(Question("a", "timeline", WHOLE))


def test_when_too_many_wait_the_rest_is_told_so(
    start: Callable[..., Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MOST_WAITING", 1)
    os.mkfifo(tmp_path / "go")
    act = f"open({str(tmp_path / 'go')!r}).read(); Answer('ready', b'slice').write(1)"
    here = start(*acting(tmp_path, act))
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(here.get(Question("a", "timeline", WHOLE))))
    waiting.start()
    eventually(lambda: (tmp_path / "starts").exists())
    with pytest.raises(Busy):
        here.get(Question("b", "timeline", WHOLE))
    (tmp_path / "go").write_text("go")
    waiting.join()
    assert found == [b"slice"]


def test_the_process_exits_when_nobody_can_ask(tmp_path: Path, entry: Path) -> None:
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=worker_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(Question(str(entry), "timeline", WHOLE).to_line())
        assert Answer.read(process.stdout.read).state == "ready"
        process.stdin.close()
        assert process.wait(60) == 0


def test_few_entries_stay_open(tmp_path: Path, entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter, "MOST_OPEN", 2)
    here = Cutter()
    for name in "abcde":
        (tmp_path / name).write_bytes(entry.read_bytes())
        (tmp_path / name).chmod(0o600)
        assert here.answer(Question(str(tmp_path / name), "timeline", WHOLE)).state == "ready"
    links = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert sorted(link for link in links if link.startswith(f"{tmp_path}/")) == [
        str(tmp_path / name) for name in "de"
    ]


def test_a_bug_is_reported_by_its_place(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(cutter, "SLICERS", {"timeline": fail})
    answer = Cutter().answer(Question(str(entry), "timeline", WHOLE))
    error = answer.error()
    assert isinstance(error, Defect)
    assert "secret" not in str(error)


def test_messages_survive_a_round_trip(tmp_path: Path) -> None:
    question = Question("/é/\udcff", "timeline", (1.5, None, 3))
    assert Question.from_line(question.to_line()) == question
    errors: list[GpudiagError] = [UsageError("what", where="where", remedy="remedy")]
    for answer in (Answer("ready", b"x" * 300_000), Answer("corrupt"), Answer.of_error(errors[0])):
        with open(tmp_path / "answer", "wb") as file:
            answer.write(file.fileno())
        with open(tmp_path / "answer", "rb") as file:
            assert Answer.read(partial(_few, file)) == answer
    assert str(answer.error()) == str(errors[0])


def _few(file: IO[bytes], _size: int) -> bytes:
    return file.read(7)
