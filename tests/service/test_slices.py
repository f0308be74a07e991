"""Slices are cut in a process of their own. Whatever happens to it, requests are answered."""

from __future__ import annotations

import gzip
import json
import os
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import CorruptEntry, ProcessFailed, UsageError
from tb_gpudiag.service import cutter, slices
from tb_gpudiag.service.analyses.diagnoses import diagnose_trace
from tb_gpudiag.service.analyses.task import save
from tb_gpudiag.service.cutter import Cutter
from tb_gpudiag.service.processes import child
from tb_gpudiag.service.slices import Question, Slices, SlicesBusy
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
    return save(diagnose_trace(file).entry, (str(tmp_path / "entry"),))


@pytest.fixture(scope="module")
def real() -> Iterator[Slices]:
    """Slices from the real process, which starts once for all tests. A cut off entry may end it."""
    made = Slices()
    yield made
    made.close()


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Slices]]:
    """Make slices whose process acts like this on each question. `turn` counts its starts, from 1."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(slices, "MODULE", "acting")
    made: list[Slices] = []

    def make(act: str) -> Slices:
        script = f"""
            import os, time
            from tb_gpudiag.errors import CorruptEntry
            from tb_gpudiag.service.processes.child import ChildMessage
            with open({str(tmp_path / "starts")!r}, "a+") as file:
                print("start", file=file, flush=True)
                file.seek(0)
                turn = len(file.readlines())

            def answer(request, reply):
                {act}
        """
        (tmp_path / "acting.py").write_text(textwrap.dedent(script))
        made.append(Slices())
        return made[-1]

    yield make
    for each in made:
        each.close()


def shown(content: bytes) -> Any:
    return json.loads(gzip.decompress(content))


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
    acting: Callable[[str], Slices], tmp_path: Path
) -> None:
    here = acting("return ChildMessage(content=str(time.perf_counter()).encode())")
    first = here.get(Question("a", "timeline", WHOLE))
    other = here.get(Question("b", "timeline", WHOLE))
    assert here.get(Question("a", "timeline", WHOLE)) == first != other


def test_slices_that_are_kept_are_bounded(
    acting: Callable[[str], Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "KEPT_BYTES", 250)
    here = acting("return ChildMessage(content=os.urandom(100))")
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
    acting: Callable[[str], Slices], tmp_path: Path
) -> None:
    """As from SIGBUS, when a mapped file is cut off between the check and the reading."""
    here = acting("if turn == 1: os.kill(os.getpid(), 7)\n                raise CorruptEntry.at('a')")
    with pytest.raises(CorruptEntry):
        here.get(Question("a", "timeline", WHOLE))
    assert starts(tmp_path) == 2


def test_a_process_that_always_dies_is_a_clear_failure(
    acting: Callable[[str], Slices], tmp_path: Path
) -> None:
    here = acting("os._exit(1)")
    with pytest.raises(ProcessFailed, match="ended unexpectedly"):
        here.get(Question("a", "timeline", WHOLE))
    assert starts(tmp_path) == 2


def test_a_process_that_hangs_is_stopped(
    acting: Callable[[str], Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "ANSWER_WITHIN_S", 1.0)
    here = acting("time.sleep(600)")
    with pytest.raises(ProcessFailed, match="more than 1 s"):
        here.get(Question("a", "timeline", WHOLE))


def test_a_process_that_cannot_be_started_is_a_clear_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PROGRAM", ("/nonexistent/python",))
    with pytest.raises(ProcessFailed):
        Slices().get(Question("a", "timeline", WHOLE))


def test_when_too_many_wait_the_rest_is_told_so(
    acting: Callable[[str], Slices], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MOST_WAITING", 1)
    os.mkfifo(tmp_path / "go")
    here = acting(f"open({str(tmp_path / 'go')!r}).read(); return ChildMessage(content=b'slice')")
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(here.get(Question("a", "timeline", WHOLE))))
    waiting.start()
    eventually(lambda: (tmp_path / "starts").exists())
    with pytest.raises(SlicesBusy):
        here.get(Question("b", "timeline", WHOLE))
    (tmp_path / "go").write_text("go")
    waiting.join()
    assert found == [b"slice"]


def test_few_entries_stay_open(tmp_path: Path, entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter, "MOST_OPEN", 2)
    here = Cutter()
    for name in "abcde":
        (tmp_path / name).write_bytes(entry.read_bytes())
        (tmp_path / name).chmod(0o600)
        assert here.cut(str(tmp_path / name), "timeline", WHOLE)
    links = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert sorted(link for link in links if link.startswith(f"{tmp_path}/")) == [
        str(tmp_path / name) for name in "de"
    ]
