"""A document as one HTML page: no scripts, nothing fetched, light or dark as the reader's system is.

The templates escape every value (Jinja2's autoescape), so names of the trace never become markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.account_figures import WHOLE, WINDOW, account_rows, account_total
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.document import Document
from tb_gpudiag.wording.palette import FILLS, PALETTE, Scheme, css_variables


def to_html(reports: Sequence[pb.Report]) -> str:
    """Reports as one page, and a table of them first where there are several."""
    return document_html(compose(reports))


def document_html(document: Document) -> str:
    """A document as one page: its overview, then its reports one after another."""
    return _template().render(document=document)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tb_gpudiag.report.views"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        "account_rows": account_rows,
        "account_total": account_total,
        "WINDOW": WINDOW,
        "WHOLE": WHOLE,
        "css_variables": _css_variables,
    }
    return environment.get_template("page.html.j2")


def _css_variables(scheme: Scheme) -> Markup:
    return Markup(css_variables({**PALETTE, **FILLS}, scheme))
