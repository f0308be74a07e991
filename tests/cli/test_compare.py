"""`gpudiag compare`: formats, exit statuses, and what it takes for a side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tb_gpudiag.errors import NothingToRead, UsageError
from tests.builder import TraceBuilder
from tests.jobs.compare.sides import finding, trace


def written(folder: Path, digest: Digest) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest.about.id}{SUFFIX}"
    path.write_bytes(to_bytes(digest))
    return str(path)


@pytest.fixture
def fast(tmp_path: Path) -> str:
    return written(tmp_path, trace([600] * 8, "fast"))


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return written(tmp_path, trace([1000] * 8, "slow", findings=[finding("GD101", 800)]))


def test_json_is_one_comparison(slow: str, fast: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", slow, fast, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"comparison"}
    comparison = found["comparison"]
    step = comparison["step_us"]
    assert (step["base"], step["candidate"], step["difference"]) == (1000, 600, -400)
    assert {"low", "high"} <= set(step)
    assert comparison["verdict"] == "FASTER"
    assert comparison["causes"] == [{"cause": "computing", "base_us": 1000, "candidate_us": 600}]
    assert [each["rule"] for each in comparison["findings"]["gone"]] == ["GD101"]
    assert (comparison["findings"]["new"], comparison["findings"]["changed"]) == ([], [])
    assert {"base", "candidate", "sentence", "operators", "kernels", "verified"} <= set(comparison)


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_other_formats(slow: str, fast: str, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compare", slow, fast, "--format", format, "-o", str(out)]) == 0
    assert "Faster by 40.0%" in out.read_text()


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], 0),
        (["slower"], 1),
        (["slower:5"], 1),
        (["slower:66"], 1),
        (["slower:67"], 0),
        (["new-findings"], 1),
        (["slower:67,new-findings"], 1),
        (["slower:67", "--fail-on", "new-findings"], 1),
    ],
)
def test_conditions(slow: str, fast: str, conditions: list[str], status: int) -> None:
    options = ["--fail-on", *conditions] if conditions else []
    assert main(["compare", fast, slow, *options]) == status


@pytest.mark.parametrize("condition", ["slower", "slower:0", "new-findings"])
def test_a_faster_candidate_meets_no_condition(slow: str, fast: str, condition: str) -> None:
    assert main(["compare", slow, fast, "--fail-on", condition]) == 0


def test_who_cannot_tell_says_so(fast: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path, trace([1000] * 8, "other", device_name="NVIDIA H100"))
    assert main(["compare", fast, other, "--fail-on", "slower"]) == 0
    assert "Cannot tell which is faster: they ran on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "condition", ["slower:x", "slower:-1", "slower:nan", "faster", "GD101", "new-findings:1"]
)
def test_bad_conditions(slow: str, fast: str, condition: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", slow, fast, "--fail-on", condition]) == 2
    assert "--fail-on takes slower, slower:PERCENT and new-findings" in capsys.readouterr().err


def test_a_side_that_is_not_there(slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", slow, str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_side_that_is_empty(slow: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["compare", slow, str(tmp_path / "empty")]) == 2


def test_a_side_that_cannot_be_read(slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / f"bad{SUFFIX}"
    bad.write_bytes(b"not a digest")
    assert main(["compare", slow, str(bad)]) == 2
    assert "not a digest" in capsys.readouterr().err


def test_recordings_of_several_runs_are_no_side(fast: str, tmp_path: Path) -> None:
    for run in ("one", "other"):
        written(tmp_path / run, trace([1000] * 8, run, run=run))
    assert main(["compare", fast, str(tmp_path)]) == 2


def test_several_recordings_of_a_run_are_a_side(
    fast: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    for number in (1, 2):
        written(folder, trace([1000] * 8, f"{number}", span=f"{number}", origin_ns=number))
    assert main(["compare", fast, str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["step_us"]["candidate_steps"] == 16
    assert found["candidate"].endswith("(2 recordings)")


@pytest.mark.slow
def test_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, us in (("base", 900), ("candidate", 500)):
        made = TraceBuilder()
        main_thread = made.thread()
        for step in range(6):
            main_thread.step(step, at=step * 1000, us=1000)
            main_thread.launch("gemm", at=step * 1000 + 5, us=5, runs_at=step * 1000 + 20, runs_us=us)
        made.write(tmp_path / name)
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "candidate"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    (kernel,) = found["kernels"]
    assert (kernel["base_us"], kernel["candidate_us"], kernel["base_count"]) == (900, 500, 1)
    again = tb_gpudiag.compare(str(tmp_path / "base"), str(tmp_path / "candidate"))
    assert again.sentence == found["sentence"]


def test_the_api_refuses_what_is_no_side(fast: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToRead):
        tb_gpudiag.compare(fast, str(tmp_path / "empty"))
    written(tmp_path, trace([1000] * 8, "another", run="another", span="2"))
    with pytest.raises(UsageError):
        tb_gpudiag.compare(fast, str(tmp_path))
