"""The archive of all tables, as spreadsheets read it."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.table_files import tables_zip
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.report.reports import slow_loader
from tests.report.slices.operators.test_operator_tables import arrays_of

Tables = dict[str, list[dict[str, str]]]


def tables_of(trace: TraceBuilder, folder: Path) -> tuple[pb.Report, Tables]:
    trace.write(folder)
    (file,) = find_traces(str(folder)).files
    facts = Facts(read_trace(file.path))
    report = build_report(facts, file)
    archive = zipfile.ZipFile(io.BytesIO(tables_zip(report, arrays_of(facts))))
    return report, {
        name: list(csv.DictReader(io.StringIO(archive.read(name).decode("utf-8-sig"), newline="")))
        for name in archive.namelist()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[pb.Report, Tables]:
    return tables_of(slow_loader(), tmp_path_factory.mktemp("tables"))


def test_every_table_has_its_rows_and_units_in_its_titles(made: tuple[pb.Report, Tables]) -> None:
    report, tables = made
    findings = tables["findings.csv"]
    assert [row["rule"] for row in findings] == [finding.rule for finding in report.findings]
    assert float(findings[0]["cost_us"]) == report.findings[0].cost_us
    assert findings[0]["severity"] == pb.Finding.Severity.Name(report.findings[0].severity)
    assert tables["report.csv"][0]["verdict_sentence"] == report.verdict.sentence
    assert [row["name"] for row in tables["steps.csv"]] == [step.name for step in report.steps]
    assert {row["name"] for row in tables["kernels.csv"]} >= {"gemm"}
    assert {row["name"] for row in tables["operators.csv"]} >= {"aten::mm", "aten::to"}


def test_a_list_inside_a_row_says_which_row_it_belongs_to(made: tuple[pb.Report, Tables]) -> None:
    report, tables = made
    places = tables["findings_places.csv"]
    numbers = [at for at, finding in enumerate(report.findings, 1) for _ in finding.places]
    assert [int(row["findings"]) for row in places] == numbers
    assert places[0]["function"] == report.findings[0].places[0].function


def test_a_name_is_not_run_as_a_formula(tmp_path: Path) -> None:
    trace = slow_loader()
    trace.thread().launch("=cmd()", at=2500, us=5, runs_at=2600, runs_us=50)
    _, tables = tables_of(trace, tmp_path)
    assert "'=cmd()" in {row["name"] for row in tables["kernels.csv"]}
