"""`gpudiag digest` writes one small file per trace, and keeps what is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.digest import Digest, texts
from tb_gpudiag.digest.digest_files import find_digests, read_digest
from tb_gpudiag.errors import NotATrace, ProcessFailed, Unreadable
from tb_gpudiag.report import diagnosis
from tb_gpudiag.report.diagnosis import read_facts
from tb_gpudiag.service.analyses import digests
from tb_gpudiag.service.analyses.digests import digest_all
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.builder import TraceBuilder


def write(folder: Path, *names: str) -> Path:
    for name in names:
        trace = TraceBuilder()
        main_thread = trace.thread()
        main_thread.step(0, at=0, us=1000)
        main_thread.launch(name, at=5, us=5, runs_at=20, runs_us=900)
        trace.write(folder / name)
    return folder


@pytest.mark.slow
def test_a_digest_of_each_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = write(tmp_path / "logs", "a", "b")
    out = tmp_path / "out"
    assert main(["digest", str(logs), "-o", str(out), "--processes", "1"]) == 0
    found = [read_digest(path) for path in find_digests(str(out))]
    assert [(d.about.run, texts(d.kernels, "name")) for d in found] == [("a", ["a"]), ("b", ["b"])]
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = write(tmp_path / "logs", "a", "b")
    out = tmp_path / "out"
    main(["digest", str(logs / "a"), "-o", str(out)])
    read: list[str] = []

    def counted(file: TraceFile, *_: object) -> object:
        read.append(file.run)
        return read_facts(file)

    monkeypatch.setattr(diagnosis, "read_facts", counted)
    assert main(["digest", str(logs), "-o", str(out), "--processes", "1"]) == 0
    assert read == ["b"]
    assert len(find_digests(str(out))) == 2


@pytest.mark.slow
def test_paths_may_be_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", "a", "b")
    monkeypatch.chdir(tmp_path)
    assert main(["digest", "logs", "-o", "digests", "--processes", "2"]) == 0
    assert len(find_digests("digests")) == 2


@pytest.mark.slow
def test_a_bad_trace_costs_only_its_own_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = write(tmp_path / "logs", "a")
    (logs / "bad.1.pt.trace.json").write_text("not a trace")
    out = tmp_path / "out"
    assert main(["digest", str(logs), "-o", str(out), "--processes", "1"]) == 0
    assert len(find_digests(str(out))) == 1
    assert "bad.1.pt.trace.json" in capsys.readouterr().err


def test_nothing_to_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digest", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "no trace found" in capsys.readouterr().err


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = write(tmp_path / "logs", "a")
    (tmp_path / "out").write_text("a file")
    assert main(["digest", str(logs), "-o", str(tmp_path / "out")]) == 2
    assert "cannot be created" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_process_and_a_bad_trace_cost_only_their_own_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = write(tmp_path / "logs", "a", "deadly")
    (logs / "bad.1.pt.trace.json").write_text("not a trace")
    files = find_traces(str(logs)).files
    monkeypatch.setattr(digests, "MODULE", "tests.cli.deadly_digests")
    done = {d.file.run: d.error or d.digest for d in digest_all(files, processes=2)}
    assert isinstance(done.pop("deadly"), ProcessFailed)
    assert isinstance(done.pop("."), NotATrace)
    assert isinstance(done.pop("a"), Digest)
    assert not done


@pytest.mark.slow
def test_small_traces_are_not_worth_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MODULE", "no_such_module")
    files = find_traces(str(write(tmp_path / "logs", "a", "b"))).files
    assert all(isinstance(one.digest, Digest) for one in digest_all(files))


def test_what_is_no_digest_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gpudiag-digest"
    bad.write_bytes(b"x")
    with pytest.raises(NotATrace, match="not a digest"):
        read_digest(str(bad))
    with pytest.raises(Unreadable, match="no such file"):
        read_digest(str(tmp_path / "none.gpudiag-digest"))
    os.mkfifo(tmp_path / "pipe.gpudiag-digest")
    with pytest.raises(Unreadable, match="regular file"):
        read_digest(str(tmp_path / "pipe.gpudiag-digest"))
