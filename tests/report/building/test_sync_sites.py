from __future__ import annotations

from pathlib import Path

from tests.builder import TraceBuilder
from tests.report.reports import report_of, rows_of, usual_report
from tests.report.views.formats import FORMATS, words_in


def _reads_its_loss() -> TraceBuilder:
    """A step with one `.item()` that blocks the host for 300 µs. Then the GPU is idle for 60 µs."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(12): train", at=0, us=1000)
    main.launch("gemm", at=10, us=10, runs_at=25, runs_us=460)
    main.item(at=180, us=310, runs_at=485)
    main.launch("gemm", at=525, us=10, runs_at=546, runs_us=450)
    return trace


def test_the_report_and_every_format_list_the_synchronizations(tmp_path: Path) -> None:
    report = report_of(_reads_its_loss(), tmp_path)
    (site,) = rows_of(report, "synchronizations")
    assert (site["call"], site["calls"], site["idle_after"]) == (".item() or float()", 1, 60)
    assert str(site["at"]).startswith("train (train.py, defined at line 12)")
    for format in FORMATS:
        shown = words_in(format, report)
        assert "Synchronizations" in shown
        assert ".item() or float()" in shown


def test_without_synchronizations_there_is_no_section() -> None:
    report = usual_report()
    assert not rows_of(report, "synchronizations")
    assert "Synchronizations" not in words_in("text", report)
