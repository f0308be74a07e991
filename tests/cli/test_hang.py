"""`gpudiag hang`: what it says of built dumps, and of a real gloo job that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import tb_gpudiag
from tb_gpudiag.cli.main import main
from tb_gpudiag.cli.schema import schema
from tb_gpudiag.errors import LimitReached
from tb_gpudiag.trace.flight_recorder.plain_pickle import plain_data
from tests.cli.test_annotations import closed
from tests.patience import HANGS_S
from tests.trace.flight_recorder.dumps import WORLD, entry, write


@pytest.fixture(autouse=True)
def read_here(request: pytest.FixtureRequest) -> None:
    if "slow" not in request.keywords:
        request.getfixturevalue("in_process")


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    waits = [entry("all_reduce", 1), entry("all_reduce", 2, state="started", line=7)]
    for rank in (0, 2):
        write(tmp_path, rank, waits, {WORLD: (0, 1, 2)})
    write(tmp_path, 1, [entry("all_reduce", 1, line=6)], {WORLD: (0, 1, 2)})
    return str(tmp_path)


def test_json_is_one_report(hanging: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hang", hanging, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(schema("hang"))).validate(document)
    found = document["hang"]
    assert (found["why"], found["culprits"]) == ("NOT_CALLED", [1])
    assert [(row["ranks"], row["state"]) for row in found["ranks"]] == [([1], "ENDED"), ([0, 2], "WAITS")]
    assert tb_gpudiag.to_dict(tb_gpudiag.hang(hanging)) == found


def test_a_kernel_that_has_begun_waits_for_one_that_has_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All have called it. NCCL's kernel on rank 1 is behind other work of its GPU."""
    for rank, state in enumerate(("started", "scheduled")):
        write(tmp_path, rank, [entry("all_reduce", 1, state=state)], {WORLD: (0, 1)})
    assert main(["hang", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["hang"]
    assert [(row["ranks"], row["state"]) for row in found["ranks"]] == [([1], "QUEUED"), ([0], "WAITS")]


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_other_formats_name_the_rank_and_the_lines(hanging: str, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["hang", hanging, "--format", format, "-o", str(out)]) == 0
    said = " ".join(out.read_text().split())
    assert "which rank 1 has not called" in said
    assert "/job/train.py:7 in step" in said
    assert "/job/train.py:6 in step" in said


def test_a_file_that_cannot_be_read_is_said_and_the_rest_is_read(
    hanging: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(hanging) / "nccl_trace_rank_3"
    broken.write_bytes(b"\x80\x02}nccl_version")
    assert main(["hang", hanging]) == 0
    assert "nccl_trace_rank_3: the pickle is damaged" in capsys.readouterr().err
    assert main(["hang", str(broken)]) == 2


@pytest.mark.slow
def test_dumps_are_read_in_a_process_that_is_ended_at_the_time_limit(
    hanging: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(hanging)
    assert main(["hang", "."]) == 0
    assert "which rank 1 has not called" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "0.001")
    assert main(["hang", "."]) == 2
    assert "stopped at its time limit of 0.001 s" in capsys.readouterr().err
    with pytest.raises(LimitReached):
        tb_gpudiag.hang(hanging)


@pytest.mark.slow
@pytest.mark.usefixtures("gloo")
def test_a_real_job_that_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0 waits in train(), and rank 1 never comes."""
    folder = tmp_path / "dumps"
    command = [sys.executable, "-m", "tests.trace.flight_recorder.hanging_job", str(folder), "2"]
    subprocess.run(command, check=True, timeout=HANGS_S, cwd=Path(__file__).parents[2])
    assert main(["hang", str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["hang"]
    assert (found["why"], found["culprits"]) == ("NOT_CALLED", [1])
    waiting = found["ranks"][1]
    assert (waiting["ranks"], waiting["state"]) == ([0], "WAITS")
    assert (waiting["operation"], waiting["sequence"]) == ("all-reduce", 4)
    assert waiting["place"]["function"] == "train"
    # What other tests write in its place has the same form.
    waits = plain_data((folder / "fr_trace_rank_0").read_bytes(), "")["entries"][-1]
    made = entry("all_reduce", 4, state="scheduled", back_end="gloo")
    assert {name: type(value) for name, value in waits.items()} == {
        name: list if isinstance(value, tuple) else type(value) for name, value in made.items()
    }
    assert (waits["state"], waits["retired"]) == (made["state"], made["retired"])
