"""`gpudiag verify`: formats, exit statuses, and the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import tb_gpudiag
from tb_gpudiag.cli.main import main
from tb_gpudiag.cli.schema import schema
from tb_gpudiag.errors import UsageError
from tests.cli.test_annotations import closed
from tests.cli.test_compare import written
from tests.jobs.compare.sides import finding, trace


@pytest.fixture
def before(tmp_path: Path) -> str:
    loader = finding("GD101", 1600, saves_us=(150, 450))
    return written(tmp_path, trace([1000] * 8, "before", findings=[loader]))


@pytest.fixture
def after(tmp_path: Path) -> str:
    return written(tmp_path, trace([600] * 8, "after"))


def test_json_is_one_verification(before: str, after: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", before, after, "--finding", "GD101", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(schema("verify"))).validate(document)
    found = document["verification"]
    assert (found["made"], found["rule"], found["findings"][0]["promise"]) == ("MADE", "GD101", "INSIDE")
    assert tb_gpudiag.to_dict(tb_gpudiag.verify(before, after)) == found


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_other_formats(before: str, after: str, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["verify", before, after, "--format", format, "-o", str(out)]) == 0
    assert "The fix was made" in out.read_text()


def test_nothing_is_written_unasked(before: str, after: str, tmp_path: Path) -> None:
    there = sorted(tmp_path.iterdir())
    assert main(["verify", before, after]) == 0
    assert sorted(tmp_path.iterdir()) == there


def test_the_ledger_is_shown_in_the_history(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = str(tmp_path / "ledger.jsonl")
    for _ in range(2):
        assert main(["verify", before, after, "--ledger", ledger, "--format", "json"]) == 0
    past = json.loads(capsys.readouterr().out.splitlines()[-1])["verification"]["past"]
    assert (past["rule"], past["inside"], past["below"]) == ("GD101", 1, 0)
    assert main(["history", before, "--ledger", ledger]) == 0
    assert "The promised range was right for 1 of 1 fix (100%)." in capsys.readouterr().out
    assert main(["history", before, "--ledger", ledger, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(schema("history"))).validate(document)
    assert [row["rule"] for row in document["ledger"]["rules"]] == ["GD101"]


def test_a_finding_that_was_not_there(before: str, after: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", before, after, "--finding", "GD301"]) == 2
    assert "its findings are GD101" in capsys.readouterr().err
    with pytest.raises(UsageError):
        tb_gpudiag.verify(before, after, "GD301")


def test_a_file_that_is_no_ledger_stays_as_it_is(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert main(["verify", before, after, "--ledger", str(other)]) == 2
    assert other.read_text() == "mine"
    assert "not a ledger" in capsys.readouterr().err


def test_a_side_that_cannot_be_read(before: str, tmp_path: Path) -> None:
    assert main(["verify", before, str(tmp_path / "missing")]) == 2
