"""SARIF logs have the properties that the standard requires, and no others than it names.

The schema below is the part of OASIS's sarif-schema-2.1.0.json (errata 01) for the objects that are written.
It is closed: a property that it lacks is a mistake, or is to be added here from the standard.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tb_gpudiag.cli.annotations import sarif
from tb_gpudiag.report import report_pb2 as pb
from tests.report.reports import HOSTILE
from tests.with_each import with_each

TEXT = {"type": "string"}
MESSAGE = {"text": TEXT, "markdown": TEXT}
INDEX = {"type": "integer", "minimum": 0}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def array(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


LOCATION = closed(
    [],
    id=INDEX,
    physicalLocation=closed(
        ["artifactLocation"],
        artifactLocation=closed(["uri"], uri={"type": "string", "format": "uri-reference"}),
        region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}),
    ),
    logicalLocations=array(closed(["name"], name=TEXT, kind={"enum": ["function"]}), minItems=1),
)
RULE = closed(
    ["id"],
    id=TEXT,
    name=TEXT,
    shortDescription=closed(["text"], **MESSAGE),
    help=closed(["text"], **MESSAGE),
)
RESULT = closed(
    ["ruleId", "ruleIndex", "level", "message", "locations"],
    ruleId=TEXT,
    ruleIndex=INDEX,
    level={"enum": ["none", "note", "warning", "error"]},
    message=closed(["text"], text={"type": "string", "minLength": 1}),
    locations=array(LOCATION, minItems=1),
    relatedLocations=array({**LOCATION, "required": ["id"]}, uniqueItems=True),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    properties={"type": "object"},
)
RUN = closed(
    ["tool", "results"],
    tool=closed(
        ["driver"],
        driver=closed(["name"], name=TEXT, version=TEXT, rules=array(RULE, uniqueItems=True)),
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=array(RESULT),
)
LOG = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs=array(RUN, minItems=1),
)


def finding(*places: pb.Place, **more: Any) -> pb.Finding:
    severity = pb.Finding.Severity.ERROR
    return pb.Finding(rule="GD101", name="input_pipeline", severity=severity, places=places, **more)


PLAIN = pb.Place(file="src/train.py", line=7, function="step")


@with_each(
    "findings",
    [
        [],
        [finding(PLAIN, title="Slow", summary="It is slow.", fix=pb.Fix(text="Make it fast."))],
        [finding(PLAIN, pb.Place(file="/a b/ü.py", line=2**32 - 1), pb.Place(file="C:\\x\\y.py"), title="T")],
        [finding(pb.Place(file=HOSTILE, function=HOSTILE, line=1), title=HOSTILE, summary=HOSTILE * 100)],
        [finding(pb.Place(function="no file"), title="T"), finding(PLAIN), finding(PLAIN, title="T")],
        [pb.Finding(rule="GD999", title="of no rule that is known", places=[PLAIN])],
    ],
)
def test_logs_have_what_the_standard_requires(findings: list[pb.Finding]) -> None:
    log = json.loads(sarif(findings))
    jsonschema.validate(log, LOG, format_checker=jsonschema.FormatChecker())
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]


def test_the_schema_refuses_what_the_standard_does() -> None:
    log = json.loads(sarif([finding(PLAIN, title="T")]))
    result = log["runs"][0]["results"][0]
    wrong: list[dict[str, Any]] = [{"level": "info"}, {"locations": []}, {"ruleIndex": -1}, {"line": 1}]
    for broken in wrong:
        log["runs"][0]["results"] = [result | broken]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(log, LOG)
