from __future__ import annotations

import gzip
import os
import sys
import threading
from pathlib import Path

import pytest

from tb_gpudiag.cli import annotate as annotate_command
from tb_gpudiag.cli import scrub as scrub_command
from tb_gpudiag.cli.main import main
from tb_gpudiag.report.diagnosis import diagnose_path
from tests.builder.snapshot import SnapshotBuilder
from tests.conftest import SHARED_TRACES
from tests.report.reports import slow_loader

TOKEN = "hf_" + "a1B2" * 8
BEFORE = b'{"metadata": {"env": {"HF_TOKEN": "%s", "A": 1}},  '


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace whose first bytes are the environment of its job, written unusually."""
    path = tmp_path / "worker.1.pt.trace.json"
    path.write_bytes(BEFORE % TOKEN.encode() + slow_loader().bytes()[1:] + b" \n")
    return path


def _scrubbed(trace: Path) -> bytes:
    return trace.read_bytes().replace(TOKEN.encode(), b"[removed]")


def test_every_other_byte_stays(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, output = trace.read_bytes(), tmp_path / "clean.2.pt.trace.json"
    assert main(["scrub", str(trace), "-o", str(output)]) == 0
    assert output.read_bytes() == _scrubbed(trace)
    assert trace.read_bytes() == before
    shown = capsys.readouterr()
    removed, last = shown.out.splitlines()
    assert removed == "removed “HF_TOKEN” (Hugging Face token): 1 place"
    assert last.startswith("Look through the copy before you publish it")
    assert shown.err == ""
    assert "GD907" not in {finding.rule for finding in diagnose_path(str(output)).findings}
    assert sorted(tmp_path.iterdir()) == [output, trace]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_gzip_in_and_out(suffix: str, trace: Path, tmp_path: Path) -> None:
    packed = tmp_path / "worker.2.pt.trace.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    output = tmp_path / f"clean.json{suffix}"
    assert main(["scrub", str(packed), "-o", str(output)]) == 0
    content = output.read_bytes()
    assert (gzip.decompress(content) if suffix else content) == _scrubbed(trace)


def test_nothing_to_remove_makes_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = slow_loader().write(tmp_path), tmp_path / "copy.json"
    assert main(["scrub", str(path), "-o", str(output)]) == 0
    assert output.read_bytes() == path.read_bytes()
    assert "no credentials found" in capsys.readouterr().out


@pytest.mark.parametrize("other_name", ["same", "link", "hard link"])
def test_the_trace_itself_is_never_overwritten(
    other_name: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, output = trace.read_bytes(), trace if other_name == "same" else tmp_path / "other.json"
    if other_name == "link":
        output.symlink_to(trace)
    elif other_name == "hard link":
        os.link(trace, output)
    assert main(["scrub", str(trace), "-o", str(output)]) == 2
    assert trace.read_bytes() == before
    shown = capsys.readouterr()
    assert "never overwritten" in shown.err
    assert shown.out == ""


def test_a_copy_of_before_is_replaced_as_a_whole(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "clean.json"
    output.write_text("before")
    assert main(["scrub", str(tmp_path / "missing.json"), "-o", str(output)]) == 2
    assert output.read_text() == "before"
    assert main(["scrub", str(trace), "-o", str(output)]) == 0
    assert output.read_bytes() == _scrubbed(trace)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"<html></html>", "it is not a trace"),
        (b"no json", "it is not a trace"),
    ],
)
def test_what_is_not_a_trace(
    content: bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, output = tmp_path / "x.pt.trace.json", tmp_path / "out.json"
    path.write_bytes(content)
    assert main(["scrub", str(path), "-o", str(output)]) == 2
    assert what in capsys.readouterr().err
    assert not output.exists()


def test_a_memory_snapshot_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SnapshotBuilder().write(tmp_path)
    assert main(["scrub", str(path), "-o", str(tmp_path / "out.json")]) == 2
    assert "it is not a trace" in capsys.readouterr().err


@pytest.mark.parametrize("output", [".", "missing/out.json", "s3://bucket/out.json"])
def test_an_output_that_cannot_be_written(
    output: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = output if "://" in output else str(tmp_path / output)
    assert main(["scrub", str(trace), "-o", where]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [trace]


def test_a_damaged_file_is_copied_up_to_the_damage(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = bytearray(gzip.compress(trace.read_bytes()))
    packed[-40:-30] = b"\xff" * 10
    path, output = tmp_path / "worker.3.pt.trace.json.gz", tmp_path / "out.json"
    path.write_bytes(packed)
    assert main(["scrub", str(path), "-o", str(output)]) == 0
    assert "damaged" in capsys.readouterr().err
    assert _scrubbed(trace).startswith(output.read_bytes())


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("command", ["scrub", "annotate"])
def test_a_time_limit_ends_it_and_leaves_no_copy(
    command: str,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def endless(*_: object, **__: object) -> None:
        threading.Event().wait(60)

    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "0.01")
    monkeypatch.setattr(scrub_command, "scrub", endless)
    monkeypatch.setattr(annotate_command, "read_facts", endless)
    assert main([command, str(trace), "-o", str(tmp_path / "out.json")]) == 2
    assert "stopped at its time limit" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [trace]


def test_a_real_trace(shared_traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next((SHARED_TRACES / "h100_bert_small").iterdir())
    output = tmp_path / "clean.json.gz"
    assert main(["scrub", str(path), "-o", str(output)]) == 0
    assert "HF_TOKEN" in capsys.readouterr().out
    before, after = gzip.decompress(path.read_bytes()), gzip.decompress(output.read_bytes())
    start, end = after.split(b"[removed]")
    assert before.startswith(start)
    assert before.endswith(end)
    assert len(before) - len(start) - len(end) == 37
