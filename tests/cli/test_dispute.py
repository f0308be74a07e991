"""`gpudiag dispute`: what its file has, what it has not, and that its excerpt shows the finding."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report import dispute
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.dispute import ABOUT, REPORT, TRACE, window
from tests.builder import TraceBuilder
from tests.builder.snapshot import SnapshotBuilder
from tests.report.reports import slow_loader

pytestmark = pytest.mark.slow  # each test runs the command, which diagnoses twice

TOKEN = "hf_" + "a1B2" * 8
STEPS = 40


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Many steps with one finding, an event that is a token, and the job's environment."""
    builder = slow_loader(f"train.py(12): {TOKEN}", steps=STEPS)
    path = tmp_path / "worker.1.pt.trace.json"
    path.write_bytes(b'{"metadata": {"HF_TOKEN": "%s"}, ' % TOKEN.encode() + builder.bytes()[1:])
    return path


def disputed(trace: Path, *arguments: str) -> dict[str, bytes]:
    """Content of the file by name."""
    output = trace.with_name("out.zip")
    assert main(["dispute", str(trace), *arguments, "-o", str(output)]) == 0
    with zipfile.ZipFile(io.BytesIO(output.read_bytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def steps_in(excerpt: bytes) -> int:
    events = json.loads(gzip.decompress(excerpt))["traceEvents"]
    return sum(event["name"].startswith("ProfilerStep#") for event in events)


def test_it_has_a_few_steps_that_show_the_finding_too(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = disputed(trace)
    assert sorted(content) == [ABOUT, TRACE, REPORT]
    assert 3 <= steps_in(content[TRACE]) <= 7
    about = content[ABOUT].decode()
    assert "About: GD101" in about
    assert "The excerpt alone has the finding: " in about
    assert json.loads(content[REPORT])["reports"][0]["findings"][0]["rule"] == "GD101"
    assert "Look through the copy before you publish it" in capsys.readouterr().out


def test_credentials_are_in_none_of_its_files(trace: Path) -> None:
    for name, content in disputed(trace).items():
        text = gzip.decompress(content) if name == TRACE else content
        assert TOKEN.encode() not in text, name


def test_the_host_and_its_environment_are_in_none_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "secret_host_77.1.pt.trace.json"
    path.write_bytes(
        b'{"started_by": "secret_user", "host_name": "secret_host", "record_shapes": 1, "pip": ["secret_x"], '
        + slow_loader(steps=STEPS).bytes()[1:]
    )
    content = disputed(path)
    for name, text in content.items():
        assert b"secret_" not in (gzip.decompress(text) if name == TRACE else text), name
        assert str(tmp_path).encode() not in text, name
    assert json.loads(gzip.decompress(content[TRACE]))["record_shapes"] == 1


def test_the_whole_trace_is_there_if_a_part_shows_something_else(tmp_path: Path) -> None:
    """The steps around the longest range wait far longer than most."""
    builder = TraceBuilder()
    main = builder.thread()
    for step in range(STEPS):
        at, wait = 1000.0 * step, 900 if step == STEPS // 2 else 40
        main.step(step, at=at, us=1000)
        main.frame("train.py(12): train", at=at, us=1000)
        main.loader(at=at, us=wait)
        main.op("aten::mm", at=at + wait, us=30)
        main.launch("gemm", at=at + wait + 10, us=10, runs_at=at + wait + 25, runs_us=975 - wait)
    content = disputed(builder.write(tmp_path), "GD101")
    assert steps_in(content[TRACE]) == STEPS


def test_a_finding_is_chosen_by_id_or_name(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert disputed(trace, "gd101").keys() == disputed(trace, "input_pipeline").keys()
    assert main(["dispute", str(trace), "GD405", "-o", str(trace.with_name("no.zip"))]) == 2
    assert "its findings: GD101" in capsys.readouterr().err
    assert not trace.with_name("no.zip").exists()


def test_it_says_how_many_events_did_not_fit(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispute, "_MOST_EVENTS", 10)
    content = disputed(trace)
    assert len(json.loads(gzip.decompress(content[TRACE]))["traceEvents"]) == 10
    assert "events are left out" in content[ABOUT].decode()


def test_a_memory_snapshot_has_no_events_to_cut_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = SnapshotBuilder().write(tmp_path)
    assert main(["dispute", str(path), "-o", str(tmp_path / "out.zip")]) == 2
    assert "attach its report" in capsys.readouterr().err


def test_a_damaged_trace_is_cut_out_as_far_as_it_goes(trace: Path) -> None:
    whole = trace.read_bytes()
    trace.write_bytes(whole[: len(whole) // 2])
    assert steps_in(disputed(trace)[TRACE]) >= 3


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], (0, 50)),  # the first five steps
        ([(42, 45)], (20, 70)),  # two steps around the one that it is in
        ([(95, 120)], (70, 120)),  # to the end of the last one, and of the range
        ([(-30, -10)], (-50, 10)),  # outside of all steps: its length around it
    ],
)
def test_whole_steps_around_the_longest_range(
    ranges: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    report = pb.Report(steps=[pb.Step(start_us=10 * i, duration_us=9.9) for i in range(10)])
    finding = pb.Finding(ranges=[pb.TimeRange(start_us=start, end_us=end) for start, end in ranges])
    assert window(report, finding) == pytest.approx(expected, abs=0.2)
