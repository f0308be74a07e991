"""Formats for programs: GitHub's workflow commands, JUnit and the JSON Schema."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from tb_gpudiag.cli.annotations import github_annotations
from tb_gpudiag.cli.main import main
from tb_gpudiag.cli.schema import schema
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.compare.sides import finding, trace
from tests.report.reports import slow_loader
from tests.simulator import simulate

pytestmark = pytest.mark.slow  # each test runs commands on whole traces


def found(**more: Any) -> pb.Finding:
    return pb.Finding(
        rule="GD101",
        name="input_pipeline",
        severity=pb.Finding.Severity.WARNING,
        title="50% of the time: waiting, a\nlot",
        summary="First 100%.\nSecond.",
        places=[pb.Place(file="src/a,b:c.py", line=7, function="f"), pb.Place(file="other.py", line=1)],
        fix=pb.Fix(text="Do it."),
        **more,
    )


def test_a_workflow_command_is_escaped_as_github_asks() -> None:
    (line,) = github_annotations([found()]).splitlines()
    head, message = line.removeprefix("::warning ").split("::")
    assert head == "file=src/a%2Cb%3Ac.py,line=7,title=GD101%3A 50%25 of the time%3A waiting%2C a lot"
    assert message == "First 100%25. Second. Fix: Do it."


def test_a_finding_without_a_place_is_an_annotation_without_a_file() -> None:
    one = found()
    one.severity = pb.Finding.Severity.INFO
    del one.places[:]
    assert github_annotations([one]).startswith("::notice title=")


def test_a_path_of_another_machine_is_found_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").touch()
    (tmp_path / "utils.py").touch()
    monkeypatch.chdir(tmp_path)
    for recorded, shown in (
        ("/root/project/pkg/train.py", "pkg/train.py"),
        ("D:\\project\\pkg\\train.py", "pkg/train.py"),
        (f"{tmp_path}/utils.py", "utils.py"),
        ("/usr/lib/python3/dist-packages/utils.py", "/usr/lib/python3/dist-packages/utils.py"),
        ("/root/../utils.py", "/root/../utils.py"),
    ):
        one = found()
        one.places[0].file = recorded
        assert f"file={shown},line=7" in github_annotations([one])


def test_diagnose_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow_loader().write(tmp_path / "log")
    assert main(["diagnose", str(tmp_path / "log"), "--format", "github", "--fail-on", "GD101"]) == 1
    assert "title=GD101%3A" in capsys.readouterr().out


def test_junit_has_a_case_for_each_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli.test_compare import written

    fast = written(tmp_path, trace([600] * 8, "fast"))
    slow = written(tmp_path, trace([1000] * 8, "slow\x07", findings=[finding("GD101", 800)]))
    conditions = ["--fail-on", "slower:5,new-findings"]
    assert main(["compare", fast, slow, "--format", "junit", *conditions]) == 1
    suite = ElementTree.fromstring(capsys.readouterr().out)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    slower, new = suite.findall("testcase/failure")
    assert "slower" in slower.get("message", "").lower() or "more" in slower.get("message", "")
    assert (new.get("message") or "").startswith("GD101")
    assert main(["compare", slow, fast, "--format", "junit", *conditions]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).get("failures") == "0"


def closed(schema: Any) -> Any:
    """Return the schema with no other properties allowed, so that a field it lacks is found."""
    schema = copy.deepcopy(schema)
    for one in (schema, *schema["$defs"].values()):
        one["additionalProperties"] = False
    return schema


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema("diagnose")
    jsonschema.Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("scenario", ["healthy", "input_pipeline", "leak_kept_graph"])
def test_reports_of_simulated_jobs_fit_the_schema(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(scenario).write(tmp_path)
    (tmp_path / "broken.pt.trace.json").write_text("?")
    assert main(["diagnose", str(tmp_path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["errors"]
    jsonschema.Draft202012Validator(closed(schema("diagnose"))).validate(document)
    document["reports"][0]["findings"] = None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema("diagnose"))


@pytest.mark.parametrize("folder", ["h100_bert_small", "v100_dlrm_8ranks", "cpu_only"])
def test_reports_of_real_traces_fit_the_schema(
    folder: str, shared_traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(shared_traces / folder), "--format", "json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(schema("diagnose"))).validate(document)
