"""Every real trace has a Report that adds up and that every format can show. Skipped without real traces."""

from __future__ import annotations

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_report
from tests.report.laws import assert_report_laws
from tests.report.views.formats import to_html, to_markdown, to_text

pytestmark = pytest.mark.real

FOLDERS = (
    sorted(path.name for path in SHARED_TRACES.iterdir() if path.is_dir()) if SHARED_TRACES.is_dir() else []
)


@pytest.mark.skipif(not FOLDERS, reason="the real traces are not here")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_real_trace_adds_up_and_can_be_shown(folder: str) -> None:
    reports = [real_report(file.path) for file in find_traces(str(SHARED_TRACES / folder)).files]
    assert reports
    for report in reports:
        assert report.verdict.sentence
        assert_report_laws(report)
        assert from_json(to_json(report), pb.Report) == report
    for shown in (to_text(reports), to_markdown(reports), to_html(reports)):
        assert reports[0].trace.path in shown.replace("\n", "")
