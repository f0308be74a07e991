"""Messages show themselves in notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Document

_METHOD: Final = "_repr_html_"
_HEIGHT_PX: Final = 640


def set_up() -> None:
    """Give the classes of the messages, which are generated, the method that notebooks look for."""
    for message, document in _DOCUMENTS.items():
        setattr(message, _METHOD, _shown_as(document))


def _report(report: pb.Report) -> Document:
    from tb_gpudiag.report.views.compose import compose

    return compose([report])


def _job(report: pb.JobReport) -> Document:
    from tb_gpudiag.jobs.report.job_view import job_document

    return job_document([report])


def _comparison(comparison: pb.Comparison) -> Document:
    from tb_gpudiag.jobs.compare.comparison_view import comparison_document

    return comparison_document(comparison)


def _hang(found: pb.HangReport) -> Document:
    from tb_gpudiag.report.views.compose import hang_document

    return hang_document(found, "")


def _history(history: pb.History) -> Document:
    from tb_gpudiag.jobs.history.history_view import history_document

    return history_document([history])


_DOCUMENTS: Final[dict[type, Callable[[Any], Document]]] = {
    pb.Report: _report,
    pb.JobReport: _job,
    pb.Comparison: _comparison,
    pb.HangReport: _hang,
    pb.History: _history,
}


def _shown_as(document: Callable[[Any], Document]) -> Callable[[Any], str]:
    def in_a_frame(message: Any) -> str:
        from tb_gpudiag.report.views.html import document_html

        # A frame without rights: neither the page's styles nor names of a trace reach the notebook.
        page = html.escape(document_html(document(message)))
        return f'<iframe sandbox srcdoc="{page}" width="100%" height="{_HEIGHT_PX}" frameborder="0"></iframe>'

    return in_a_frame
