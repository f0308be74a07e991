"""Every real trace has a Report that adds up and that every format can show. Skipped without real traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_facts
from tests.report.laws import assert_report_laws
from tests.report.views.formats import to_html, to_markdown, to_text

pytestmark = pytest.mark.real

FOLDERS = (
    sorted(path.name for path in SHARED_TRACES.iterdir() if path.is_dir()) if SHARED_TRACES.is_dir() else []
)


def _reports(folder: str) -> list[pb.Report]:
    files = find_traces(str(SHARED_TRACES / folder)).files
    return [build_report(real_facts(file.path), file) for file in files]


@pytest.mark.skipif(not FOLDERS, reason="the real traces are not here")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_real_trace_adds_up_and_can_be_shown(folder: str) -> None:
    reports = _reports(folder)
    assert reports
    for report in reports:
        assert report.verdict.sentence
        assert_report_laws(report)
        assert from_json(to_json(report), pb.Report) == report
    for shown in (to_text(reports), to_markdown(reports), to_html(reports)):
        assert reports[0].trace.path in shown.replace("\n", "")


def test_the_healthy_job_gets_no_finding_above_info(shared_traces: Path) -> None:
    (report,) = _reports("v100_ddp_resnet_healthy")
    assert {f.rule for f in report.findings if f.severity > pb.Finding.INFO} == set()
    assert report.verdict.limiter == pb.Verdict.compute
    assert shared_traces.is_dir()


@pytest.mark.parametrize(
    ("folder", "rule"),
    [
        ("h100_owlv2", "GD101"),
        ("v100_resnet50_workers0", "GD101"),
        ("h100_timesformer", "GD102"),
        ("a100_recsys_queued", "GD105"),
        ("a4000_gpu_only_one_step", "GD302"),
        ("rtx5080_without_cuda_graph", "GD201"),
        ("a100_launches_without_kernels", "GD905"),
    ],
)
def test_the_first_finding_is_the_known_one(folder: str, rule: str, shared_traces: Path) -> None:
    assert (shared_traces / folder).is_dir()
    assert _reports(folder)[0].findings[0].rule == rule
