"""What a reader sees in each format: its words without markup, on one line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from rich.console import Console

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text, print_document

FORMATS = ("text", "markdown", "html")


def to_text(reports: Sequence[pb.Report]) -> str:
    return document_text(compose(reports))


def to_markdown(reports: Sequence[pb.Report]) -> str:
    return document_markdown(compose(reports))


def to_html(reports: Sequence[pb.Report]) -> str:
    return document_html(compose(reports))


class Page(HTMLParser):
    """Tags, attributes, links and words of a page; the words of its title and styles are left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.words = ""
        self._hidden = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self._hidden = tag in ("title", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        self.words += "" if self._hidden else data


def rendered(markdown: str) -> str:
    """Markdown as HTML."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))


def words_in(format: str, *reports: pb.Report) -> str:
    """Words of the reports in this format, as if no line was ever broken."""
    if format == "text":
        out = io.StringIO()
        print_document(
            compose(reports), Console(file=out, width=10_000, color_system=None, force_terminal=False)
        )
        shown = out.getvalue()
    elif format == "markdown":
        shown = Page(rendered(to_markdown(reports))).words
    else:
        shown = Page(to_html(reports)).words
    return one_space(shown)


def one_space(words: str) -> str:
    """The words with single plain spaces between them."""
    return " ".join(words.split())
