"""A store that does not answer is a problem in the list, and nothing that was listed is lost."""

from __future__ import annotations

import threading

import pytest

from tb_gpudiag.errors import Unreadable
from tb_gpudiag.service.index import log_index as index_module
from tb_gpudiag.service.index import roots
from tb_gpudiag.service.index.log_index import LogIndex
from tb_gpudiag.service.index.roots import RemoteRoot, Root
from tb_gpudiag.trace.files.find import Found, Tell, TraceFile
from tests.service.helpers import eventually

URL = "s3://bucket/log"
FILE = TraceFile(f"{URL}/a.1.pt.trace.json", ".", "a", "1", 1, 0, "v1")
LOST = Found(problems=[Unreadable("the connection was refused", where=URL)], lost=True)


class Bucket:
    """A fake store with a fake clock. It answers `answer`, when it may `go_on`."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.answer: Found | Exception = Found([FILE])
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = 0
        self.woken = 0
        self.root = RemoteRoot(URL, self.find, self.wake, lambda: self.now_s)

    def find(self, url: str) -> Found:
        self.asked += 1
        self.go_on.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def wake(self) -> None:
        self.woken += 1

    def look(self, after_s: float = 0.0) -> tuple[int, list[str]]:
        """Ask, wait for the answer, and return the number of files and the problems."""
        self.now_s += after_s
        self.root.ask()
        if self.go_on.is_set():
            self.root.wait(60)
        found = self.root.found()
        return len(found.files), [problem.what for problem in found.problems]


def test_what_was_listed_stays_while_the_network_is_lost() -> None:
    bucket = Bucket()
    assert bucket.look() == (1, [])
    bucket.answer = LOST
    assert bucket.look(1) == (1, ["the connection was refused. The list is from before"])
    bucket.answer = Found([FILE, FILE])
    assert bucket.look(1) == (1, ["the connection was refused. The list is from before"])
    assert bucket.asked == 2
    assert bucket.look(roots.RETRY_S) == (2, [])
    assert bucket.woken == bucket.asked == 3


@pytest.mark.parametrize("error", [Unreadable("not allowed", where=URL), RuntimeError("a bug")])
def test_whatever_is_raised_is_a_lost_network(error: Exception) -> None:
    bucket = Bucket()
    bucket.look()
    bucket.answer = error
    files, (what,) = bucket.look(1)
    assert files == 1
    assert what in {
        "not allowed. The list is from before",
        "the store cannot be listed: RuntimeError. The list is from before",
    }


def test_a_folder_that_is_gone_has_no_files() -> None:
    bucket = Bucket()
    bucket.look()
    bucket.answer = Found(problems=[Unreadable("there is nothing at this URL", where=URL)])
    assert bucket.look(1) == (0, ["there is nothing at this URL"])


def test_a_store_that_hangs_is_told_and_asked_by_one_thread_only() -> None:
    bucket = Bucket()
    bucket.go_on.clear()
    assert bucket.look() == (0, ["the store has not answered yet"])
    assert bucket.look(roots.SLOW_S) == (0, ["the store does not answer"])
    for _ in range(10):
        bucket.look(60)
    bucket.go_on.set()
    assert bucket.look() == (1, [])
    assert bucket.asked == 1


def test_a_listing_that_never_ends_is_abandoned() -> None:
    bucket = Bucket()
    bucket.go_on.clear()
    bucket.look()
    stuck, bucket.go_on = bucket.go_on, threading.Event()
    bucket.go_on.set()
    assert bucket.look(roots.ABANDONED_AFTER_S) == (1, [])
    stuck.set()  # its late answer changes nothing
    assert bucket.look() == (1, [])


@pytest.mark.parametrize(("seconds", "pause_s"), [(2, 2 / roots.SHARE_OF_TIME), (60, roots.MOST_PAUSE_S)])
def test_a_large_store_is_listed_less_often(seconds: float, pause_s: float) -> None:
    bucket = Bucket()
    bucket.go_on.clear()
    bucket.look()
    bucket.now_s += seconds
    bucket.go_on.set()
    bucket.root.wait(60)
    bucket.look(pause_s - 0.1)
    assert bucket.asked == 1
    bucket.look(0.1)
    assert bucket.asked == 2


def test_the_scan_of_other_directories_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's answer starts another scan."""
    for pause in ("SCAN_EVERY_S", "SCAN_EVERY_IDLE_S"):
        monkeypatch.setattr(index_module, pause, 600.0)
    monkeypatch.setattr(index_module, "SHARE_OF_TIME", 1.0)
    monkeypatch.setattr(index_module, "WAIT_FOR_STORES_S", 0.01)
    hangs = threading.Event()

    def find(root: str, _tell: Tell) -> Found:
        if "://" in root:
            hangs.wait()
            return Found([FILE])
        return Found([TraceFile(f"{root}/b", ".", "b", "", 1, 0, "v1")])

    index = LogIndex([Root(URL, "remote"), Root("/log", "local")], find=find)

    def runs() -> list[str]:
        return [entry.file.run for entry in index.snapshot().entries.values()]

    index.start()
    assert index.wait_for_first_scan(60.0)
    assert runs() == ["local"]
    assert [problem.what for problem in index.snapshot().problems] == ["the store has not answered yet"]
    hangs.set()
    eventually(lambda: runs() == ["remote", "local"])
    assert index.snapshot().problems == ()
    index.close()
