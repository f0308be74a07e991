"""Reports of simulated jobs, compared with copies that a person has checked: see README.md."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.report.views.formats import to_text
from tests.simulator import simulate

HERE = Path(__file__).parent
WRITE = "GPUDIAG_WRITE_GOLDEN"
RULES_COMPARED = HERE / "rules.txt"
"""Ids of the rules whose "clear" and "cannot tell" are compared. A rule that is added later changes a golden
report only if it fires there."""


def _compared_rules() -> set[str]:
    if os.environ.get(WRITE):
        RULES_COMPARED.write_text("".join(f"{id}\n" for id in sorted(rule.id for rule in RULES)))
    return set(RULES_COMPARED.read_text().split())


@cache
def _report(scenario: str) -> pb.Report:
    with TemporaryDirectory() as folder:
        written = simulate(scenario, seed=0).write(Path(folder, scenario))
        (file,) = find_traces(folder).files
        file = replace(file, path=f"log/{scenario}/{written.name}")
        made = build_report(Facts(read_trace(str(written))), file)
    made.generator = "tb-gpudiag"  # without the version
    compared = _compared_rules()
    for listed in (made.clear, made.unchecked):
        for place in reversed(range(len(listed))):
            if listed[place].rule not in compared:
                del listed[place]
    return made


def _compare(name: str, shown: str) -> None:
    kept = HERE / name
    if os.environ.get(WRITE):
        kept.write_text(shown, encoding="utf-8")
    assert kept.exists(), f"no {name}: see README.md"
    assert shown == kept.read_text(encoding="utf-8"), f"{name} has changed: see README.md"


@pytest.mark.parametrize("scenario", ["input_pipeline", "launch_bound", "leak_kept_graph", "healthy"])
def test_text(scenario: str) -> None:
    _compare(f"{scenario}.txt", to_text([_report(scenario)]))


def test_json() -> None:
    report = to_dict(_report("input_pipeline"))
    _compare("input_pipeline.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
