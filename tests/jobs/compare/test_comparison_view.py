"""What readers see of a comparison, the same in every format."""

from __future__ import annotations

from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text
from tests.jobs.compare.sides import finding, trace
from tests.report.views.formats import Page, one_space, rendered

KERNELS = [
    {
        "name": "void at::native::gemm<float, (Kind)2>(float*, int)",
        "family": "gemm",
        "path": "Model > aten::mm",
        "count": 8,
        "time_ns": 80_000,
    }
]
OTHER_KERNELS = [{**KERNELS[0], "name": "void (anonymous namespace)::wgmma(int)", "time_ns": 40_000}]


def example() -> pb.Comparison:
    base = trace(
        [1000] * 8,
        "base-folder",
        computing=0.5,
        kernels=KERNELS,
        findings=[finding("GD101", 4000, saves_us=(300, 500))],
    )
    candidate = trace([600] * 8, "candidate-folder", kernels=OTHER_KERNELS, findings=[finding("GD904", 0)])
    return compare([base], [candidate])


SHOWN = [
    "base: base-folder",
    "candidate: candidate-folder",
    "Faster by 40.0%: 600 µs per step instead of 1 ms",
    "Data loading 500 µs 0 ms -500 µs",
    "Mean step 1 ms 600 µs -400 µs",
    "GD101 name_GD101 gone GD101 costs 4000",
    "GD904 name_GD904 new GD904 costs 0",
    "GD101 name_GD101 300 µs to 500 µs 400 µs",
    "gemm<float, (Kind)2> → wgmma 10 µs 5 µs -5 µs 1 aten::mm",
    "No operator has recorded input shapes on both sides",
]


def test_every_format_shows_it() -> None:
    document = comparison_document(example())
    wide = document_text(document).replace("\n", " ")
    assert "Mean step" in wide
    for words in (Page(rendered(document_markdown(document))).words, Page(document_html(document)).words):
        assert [text for text in SHOWN if text not in one_space(words)] == []


def test_the_terminal_shows_every_section() -> None:
    shown = document_text(comparison_document(example()))
    for title in (
        "Where the difference went",
        "Findings",
        "Estimated and measured saving",
        "GPU work",
        "Notes",
    ):
        assert title in shown


def test_a_finding_that_changed_has_one_row_with_both_figures() -> None:
    base = trace([1000] * 8, "a", findings=[finding("GD101", 1600)])
    candidate = trace([1000] * 8, "b", findings=[finding("GD101", 800)])
    shown = document_text(comparison_document(compare([base], [candidate])), 80)
    assert "changed  GD101 costs 1600 → 800" in shown
    assert "(in a wider" not in shown


def test_names_of_a_trace_are_never_markup() -> None:
    hostile = [{**KERNELS[0], "name": "<script>alert(1)</script>\x1b[2J"}]
    base = trace([1000] * 8, "<b>base</b>", kernels=hostile, findings=[finding("<i>GD101</i>", 1)])
    document = comparison_document(compare([base], [trace([500] * 8, "b")]))
    for page in (document_html(document), rendered(document_markdown(document))):
        assert not Page(page).tags & {"script", "b", "i"}
    assert "\x1b" not in document_text(document)


def test_sections_without_content_are_left_out() -> None:
    same = trace([1000] * 8, "a")
    (view,) = comparison_document(compare([same], [same])).reports
    assert [section.id for section in view.sections] == ["parts"]
