"""A document as Markdown, for pasting into an issue. Names of the trace never become markup or mentions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from tb_gpudiag.report.views.document import (
    WHOLE,
    WINDOW,
    Account,
    Column,
    Document,
    Findings,
    Item,
    Kind,
    Lines,
    ReportView,
    Section,
    Table,
)
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import in_sentence

# A comment that renders as nothing keeps "@name" and "#12" from becoming a mention and a link to an issue.
_NOTHING = "<!-- -->"

# All whitespace but the no-break space.
_BREAKS = lazy_re(r"[^\S\u00a0]+")


def document_markdown(document: Document) -> str:
    """A document: its overview, then its reports one after another."""
    parts = ["\n".join(_table(document.overview)).strip()] if document.overview else []
    parts += ["\n".join(_report(report)) for report in document.reports]
    parts += [f"{code(command.line)} {text(command.does)}" for command in document.commands]
    return "\n".join(f"{part}\n" for part in parts)


def _report(report: ReportView) -> Iterator[str]:
    yield f"## {text(report.heading)}"
    yield ""
    yield f"{code(report.path)}  "
    yield text(report.about)
    yield ""
    where = f"; look first {code(report.where)}" if report.where else ""
    leak = f"; {text(in_sentence(report.leak))}" if report.leak else ""
    headline = f"**{text(report.headline)}**{where}{leak}. " if report.headline else ""
    yield f"{headline}{text(report.verdict)}"
    for figures in report.figures:
        yield from ["", text(figures)]
    for section in report.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    match section:
        case Table():
            return _table(section)
        case Lines():
            return _lines(section)
        case Account():
            return _account(section)
        case Findings():
            return _findings(section)


def _account(account: Account) -> Iterator[str]:
    yield from ["", f"### {text(account.title)}", "", "| Part | Time | Share |", "| --- | ---: | ---: |"]
    for row in account.rows:
        yield f"| {text(row.label)} | {text(row.time)} | {text(row.share)} |"
    yield f"| **{text(WINDOW)}** | **{text(account.total)}** | **{text(WHOLE)}** |"


def _findings(section: Findings) -> Iterator[str]:
    yield from ["", f"### {text(section.title)}", ""]
    if not section.cards:
        yield text(section.none)
    for card in section.cards:
        yield f"#### {card.number}. {card.severity} {text(card.rule)} {text(card.name)}: {text(card.title)}"
        yield ""
        yield text(card.summary)
        yield ""
        for fact in card.facts:
            yield f"- {_item(fact)}"
        for place in card.places:
            yield f"- {code(place.short)} {text(place.cost)}".rstrip()
        yield ""
        if card.fix:
            yield f"**Fix.** {text(card.fix)}"
        yield from _code_block(card.code)
        if card.url:
            yield from ["", f"<{card.url}>"]
        yield ""


def _lines(section: Lines) -> Iterator[str]:
    yield from ["", f"### {text(section.title)}", "", *(f"- {_item(item)}" for item in section.items)]
    yield from _code_block(section.code)


def _code_block(lines: str) -> Iterator[str]:
    if lines:
        fence = "`" * max(3, _longest_run(lines) + 1)
        yield from ["", f"{fence}python", lines.rstrip("\n"), fence]


def _item(item: Item) -> str:
    return f"{text(item.label)}: {text(item.text)}" if item.label else text(item.text)


def _table(section: Table) -> Iterator[str]:
    yield from ["", f"### {text(section.title)}", ""]
    yield _row(text(column.title) for column in section.columns)
    yield _row("---:" if column.kind is Kind.NUMBER else "---" for column in section.columns)
    for row in section.rows:
        yield _row(_cell(column, str(cell)) for column, cell in zip(section.columns, row, strict=True))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, words: str) -> str:
    # A "|" ends a cell even inside a code span.
    return code(words) if column.kind in (Kind.CODE, Kind.NAME) and "|" not in words else text(words)


def text(words: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    plain = html.escape(_one_line(words), quote=False)
    plain = re.sub(r"([\\`*_\[\]|~])", r"\\\1", plain)
    plain = re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", plain)  # would begin a list
    return re.sub(r"([@#]|\b(?:https?|ftp|www))", rf"\1{_NOTHING}", plain)


def code(words: str) -> str:
    """Text as a code span: nothing inside it is markup, a link or a mention."""
    words = _one_line(words)
    if not words:
        return ""
    fence = "`" * (_longest_run(words) + 1)
    edge = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{fence}{edge}{words}{edge}{fence}"


def _one_line(words: str) -> str:
    return _BREAKS.sub(" ", words).strip()


def _longest_run(words: str) -> int:
    return max((len(run) for run in re.findall("`+", words)), default=0)
