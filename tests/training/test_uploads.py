"""Recordings wait for a store in bounded space, in order, and the training waits for nothing."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import tb_gpudiag
from tb_gpudiag.service.processes.process_setup import worker_environment
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.training import helper, uploads
from tb_gpudiag.training.uploads import MOST_WAITING, Uploads
from tests.service.helpers import children, eventually

TOKEN = "hf_" + "a1B2" * 8


class FailingFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files in memory. Fails, waits and notes what is asked as the test says."""

    protocol = "failing"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    error: Exception | None = None
    go_on = threading.Event()
    began: list[str] = []  # noqa: RUF012
    seen: list[list[str]] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("failing://", "memory://")))

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        self.began.append(Path(lpath).name)
        self.go_on.wait()
        if self.error is not None:
            raise self.error
        super().put_file(lpath, rpath, **options)
        self.seen.append([file.worker for file in find_traces("failing://").files])


fsspec.register_implementation("failing", FailingFileSystem)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "PAUSE_S", 0.001)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(FailingFileSystem, "error", None)
    FailingFileSystem.store.clear()
    FailingFileSystem.began.clear()
    FailingFileSystem.seen.clear()
    FailingFileSystem.go_on.set()


@pytest.fixture
def made() -> Iterator[Uploads]:
    found = Uploads("failing://run/")
    yield found
    FailingFileSystem.go_on.set()
    found.close(30)


def names() -> list[str]:
    return sorted(Path(path).name for path in FailingFileSystem.store)


def begun(name: str) -> bool:
    return f"{name}.pt.trace.json" in FailingFileSystem.began


def left(made: Uploads) -> list[str]:
    """Return what waits on the local disk."""
    return os.listdir(made.folder())


def record(made: Uploads, name: str, *, diagnosed: bool = True) -> str:
    path = os.path.join(made.folder(), f"{name}.pt.trace.json")
    Path(path).write_text("{}")
    made.add(path)
    if diagnosed:
        made.diagnosed(path)
    return path


def test_a_file_appears_whole_and_the_local_one_goes(made: Uploads) -> None:
    path = record(made, "a", diagnosed=False)
    eventually(lambda: names() == ["a.pt.trace.json"], "uploaded")
    assert FailingFileSystem.seen == [[]]  # a draft is not a trace
    assert os.path.exists(path)
    made.diagnosed(path)
    eventually(lambda: not os.path.exists(path), "deleted")  # the upload may not be noted yet


def test_what_waits_is_bounded_and_the_newest_stay(made: Uploads, caplog: pytest.LogCaptureFixture) -> None:
    FailingFileSystem.go_on.clear()
    paths = [record(made, "first")]
    eventually(lambda: begun("first"))
    paths += [record(made, str(number)) for number in range(MOST_WAITING + 3)]
    assert [os.path.exists(path) for path in paths] == [True, *[False] * 3, *[True] * MOST_WAITING]
    assert made.lost == 3
    assert [message for message in caplog.messages if "dropped" in message] == [
        f"gpudiag: too many recordings wait for their upload: {count} dropped so far" for count in (1, 2)
    ]
    FailingFileSystem.go_on.set()
    eventually(lambda: len(names()) == MOST_WAITING + 1, "uploaded")


def test_large_recordings_are_bounded_by_their_size(made: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_WAITING_BYTES", 5)
    FailingFileSystem.go_on.clear()
    record(made, "first")
    eventually(lambda: begun("first"))
    paths = [record(made, str(number)) for number in range(4)]
    assert [os.path.exists(path) for path in paths] == [False, False, True, True]


def test_a_failure_is_logged_once_and_tried_again(
    made: Uploads, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LONG_PAUSE_S", 0.001)
    caplog.set_level(logging.INFO, uploads.logger.name)
    FailingFileSystem.error = OSError(
        "https://key:secret@store/run?X-Amz-Signature=abc refused the connection"
    )
    for number in range(3):
        record(made, str(number))
    eventually(lambda: len(FailingFileSystem.began) > 3 * uploads.ATTEMPTS, "tried again")
    (message,) = caplog.messages
    assert "failing://run could not be written: https://store/run refused the connection." in message
    FailingFileSystem.error = None
    eventually(lambda: caplog.messages[1:] == ["gpudiag: failing://run can be written again"], "logged")
    eventually(lambda: not left(made), "uploaded")
    assert len(names()) == 3
    assert len(caplog.messages) == 2


def test_a_new_recording_ends_a_long_pause(made: Uploads, caplog: pytest.LogCaptureFixture) -> None:
    FailingFileSystem.error = OSError("down")
    record(made, "a")
    eventually(lambda: "could not be written" in caplog.text, "given up")
    FailingFileSystem.error = None
    record(made, "b")
    eventually(lambda: names() == ["a.pt.trace.json", "b.pt.trace.json"], "uploaded")


def test_a_removed_recording_is_gone_wherever_it_was(made: Uploads) -> None:
    done = record(made, "done")
    eventually(lambda: names() == ["done.pt.trace.json"], "uploaded")
    FailingFileSystem.go_on.clear()
    doing = record(made, "doing", diagnosed=False)
    eventually(lambda: begun("doing"))
    waiting = record(made, "waiting")
    for path in (done, doing, waiting):
        made.remove(path)
    FailingFileSystem.go_on.set()
    eventually(lambda: not names(), "removed")
    assert left(made) == []
    made.close(30)
    assert names() == []


def test_a_removal_that_is_refused_blocks_nothing(made: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    path = record(made, "a")
    eventually(lambda: names() == ["a.pt.trace.json"], "uploaded")
    monkeypatch.setattr(FailingFileSystem, "rm_file", refuse)
    made.remove(path)
    record(made, "b")
    eventually(lambda: "b.pt.trace.json" in names(), "uploaded")


@pytest.mark.slow
def test_many_recordings_leave_nothing_behind(made: Uploads) -> None:
    kept: list[str] = []
    for number in range(100):
        kept.append(record(made, str(number)))
        eventually(lambda: not left(made), "uploaded")
        if len(kept) > 2:
            made.remove(kept.pop(0))
    eventually(lambda: len(names()) == 2, "removed")
    assert (left(made), made.lost) == ([], 0)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_credentials_stay_here_and_the_log_says_so_once(
    suffix: str, made: Uploads, caplog: pytest.LogCaptureFixture
) -> None:
    """A file without any is uploaded byte for byte."""
    contents = {}
    for name, more in (("plain", "1"), ("a", f'{{"HF_TOKEN": "{TOKEN}"}}'), ("b", f'"see {TOKEN}"')):
        content = f'{{"traceEvents": [],  "env": {more}}}\n'.encode()
        contents[name] = gzip.compress(content) if suffix else content
        path = Path(made.folder(), f"{name}.pt.trace.json{suffix}")
        path.write_bytes(contents[name])
        made.add(str(path))
        made.diagnosed(str(path))
    eventually(lambda: len(names()) == 3 and not left(made), "uploaded")
    stored = {
        Path(path).name.split(".")[0]: file.getvalue() for path, file in FailingFileSystem.store.items()
    }
    assert stored["plain"] == contents["plain"]
    for name in "ab":
        expected, found = ((gzip.decompress(c) if suffix else c) for c in (contents[name], stored[name]))
        assert found == expected.replace(TOKEN.encode(), b"[removed]")
    assert caplog.messages == [
        f"gpudiag: a.pt.trace.json{suffix}: The trace has credentials, in 1 place. The uploaded copy is "
        "without those that were found. See `gpudiag explain GD907`."
    ]


def test_close_is_bounded_and_keeps_what_is_nowhere_else(
    made: Uploads, caplog: pytest.LogCaptureFixture
) -> None:
    FailingFileSystem.go_on.clear()
    paths = [record(made, name, diagnosed=False) for name in ("a", "b")]
    folder = made.folder()
    made.close(0.01)
    assert all(os.path.exists(path) for path in paths)
    assert f"2 recordings were not uploaded to failing://run: they are in {folder}" in caplog.text


def test_close_deletes_the_folder_and_a_later_recording_has_another(made: Uploads, tmp_path: Path) -> None:
    for name in ("a", "b"):
        record(made, name)
        made.close(30)
        assert os.listdir(tmp_path / "temporary") == []
    assert names() == ["a.pt.trace.json", "b.pt.trace.json"]


FORK = """
import os, sys
from pathlib import Path
from tb_gpudiag.training.uploads import Uploads

made = Uploads(sys.argv[1])
first = Path(made.folder(), "parent.pt.trace.json")
first.write_text("{}")
made.add(str(first))
if os.fork() == 0:
    made.close(60)
    assert first.exists() or Path(sys.argv[1].removeprefix("file://"), first.name).exists()
    other = Path(made.folder(), "child.pt.trace.json")
    assert other.parent != first.parent
    other.write_text("{}")
    made.add(str(other))
    made.diagnosed(str(other))
    made.close(60)
    os._exit(0)
assert os.wait()[1] == 0
made.diagnosed(str(first))
made.close(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_folder_of_its_own(tmp_path: Path) -> None:
    environment = {**worker_environment(), "TMPDIR": str(tmp_path / "temporary")}
    subprocess.run([sys.executable, "-c", FORK, f"file://{tmp_path}/run"], env=environment, check=True)
    assert sorted(os.listdir(tmp_path / "run")) == ["child.pt.trace.json", "parent.pt.trace.json"]
    assert os.listdir(tmp_path / "temporary") == []


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    loaded = importlib.import_module("fsspec.registry")  # the name fsspec.registry is that of a dict
    monkeypatch.setattr(loaded, "registry", {})
    for url, package in (
        ("s3://bucket/run", r"'tb-gpudiag\[s3\]'"),
        ("gs://bucket/run", r"'tb-gpudiag\[gcs\]'"),
        ("az://bucket/run", r"'tb-gpudiag\[azure\]'"),
        ("oss://bucket/run", "ossfs"),
    ):
        with pytest.raises(ValueError, match=f"not installed: pip install {package}"):
            tb_gpudiag.DiagnosisHandler(url)
    with pytest.raises(ValueError, match="no file system is known for nosuch://"):
        tb_gpudiag.DiagnosisHandler("nosuch://bucket")
    with pytest.raises(ValueError, match="has lost a slash"):
        tb_gpudiag.DiagnosisHandler(Path("s3://bucket/run"))
    with pytest.raises(ValueError, match="writer is a URL"):
        tb_gpudiag.DiagnosisHandler("log", writer="s3://bucket/run")


@pytest.mark.slow
def test_a_url_of_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by the helper: there is more than one process that can."""
    monkeypatch.setattr(helper, "NICE", 0)
    made, before = Uploads(f"file://{tmp_path}/run"), children()
    record(made, "a")
    eventually(lambda: children() - before, "started")
    made.close(60)
    assert os.listdir(tmp_path / "run") == ["a.pt.trace.json"]
    assert os.listdir(tmp_path / "temporary") == []
