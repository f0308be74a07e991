from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from google.protobuf import json_format

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json, to_json
from tests.report.reports import HOSTILE, hostile, usual_report
from tests.with_each import with_each


def test_json_has_the_names_of_the_proto_and_defaults() -> None:
    data = json.loads(to_json(pb.Report(trace=pb.TraceInfo(), devices=[pb.Device()])))
    assert data["schema_version"] == 0
    assert data["findings"] == []
    assert data["trace"]["status"] == "COMPLETE"
    assert data["trace"]["malformed_events"] == 0
    assert data["trace"]["simulated"] is False
    assert data["devices"][0]["window_idle_us"] == 0


def test_an_unset_message_is_left_out() -> None:
    assert "error" not in json.loads(to_json(pb.ReportState(state="queued")))


def test_entries_of_a_map_are_in_the_order_of_their_keys() -> None:
    slowdown = pb.Slowdown(by_kind={f"kind {number}": number for number in random.sample(range(50), 50)})
    kinds = list(json.loads(to_json(slowdown))["by_kind"])
    assert len(kinds) == 50
    assert kinds == sorted(kinds)


def test_json_is_one_compact_line() -> None:
    text = to_json(usual_report())
    assert "\n" not in text
    assert '", "' not in text.replace(HOSTILE, "")


def test_json_and_back_gives_the_same_report(tmp_path: Path) -> None:
    for report in (usual_report(), hostile(tmp_path)):
        assert from_json(to_json(report), pb.Report) == report


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert from_json('{"schema_version": 1, "horoscope": "fine"}', pb.Report).schema_version == 1


def test_json_that_is_not_a_report_is_an_error() -> None:
    with pytest.raises(json_format.ParseError):
        from_json('{"devices": 3}', pb.Report)


@with_each("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_an_error(value: float) -> None:
    report = pb.Report(devices=[pb.Device(idle_by_cause=[pb.CauseTime(cause="input", us=value)])])
    with pytest.raises(ValueError, match=r"CauseTime\.us"):
        to_json(report)


def test_a_name_may_be_nan() -> None:
    report = pb.Report(devices=[pb.Device(name="NaN")])
    assert json.loads(to_json(report))["devices"][0]["name"] == "NaN"
