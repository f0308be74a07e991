"""`gpudiag compare --finding`: what became of one finding, in each format, and exit statuses."""

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

LOADER = finding("GD101", 1600, saves_us=(150, 450))
COPIES = finding("GD302", 800, saves_us=(50, 100))


@pytest.fixture
def base(tmp_path: Path) -> str:
    return written(tmp_path, trace([1000] * 8, "base", findings=[LOADER, COPIES]))


@pytest.fixture
def candidate(tmp_path: Path) -> str:
    return written(tmp_path, trace([600] * 8, "candidate", findings=[COPIES]))


def test_json_has_the_promise_of_this_finding_only(
    base: str, candidate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", base, candidate, "--finding", "input_pipeline", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(schema("compare"))).validate(document)
    (row,) = document["comparison"]["verified"]
    assert (row["rule"], row["became"], row["promise"]) == ("GD101", "GONE", "INSIDE")
    assert tb_gpudiag.to_dict(tb_gpudiag.compare(base, candidate, "GD101")) == document["comparison"]


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_readers_see_it_first(base: str, candidate: str, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compare", base, candidate, "--finding", "GD101", "--format", format, "-o", str(out)]) == 0
    shown = " ".join(out.read_text().replace("\xa0", " ").split())
    assert shown.index("is gone: it cost") < shown.index("Faster by 40.0%")
    assert "GD302 name_GD302 is still there" not in shown


def test_the_exit_status_is_that_of_the_conditions(base: str, candidate: str) -> None:
    for sides, status in (((base, candidate), 0), ((candidate, base), 1)):
        assert main(["compare", *sides, "--finding", "GD302", "--fail-on", "slower,new-findings"]) == status


def test_a_finding_that_was_not_there(base: str, candidate: str, capsys: pytest.CaptureFixture[str]) -> None:
    for rule, said in (("GD301", "its findings are GD101, GD302"), ("GD000", "there is no such rule")):
        assert main(["compare", base, candidate, "--finding", rule]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(UsageError):
        tb_gpudiag.compare(base, candidate, "GD301")
