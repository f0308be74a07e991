"""A document for the terminal. Names of the trace are shown as text, never as markup."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import compress
from typing import Any

from rich.console import Console, Group
from rich.containers import Lines as RichLines
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from tb_gpudiag.report.views.document import (
    WHOLE,
    WINDOW,
    Account,
    Document,
    FindingCard,
    Findings,
    Kind,
    Lines,
    ReportView,
    Section,
    Table,
)
from tb_gpudiag.report.views.screen import NARROWEST, PLAIN_WIDTH, bar, severity_style
from tb_gpudiag.wording.format import NO_BREAK, cut_apart

_NARROWEST_HEADER = 10  # a title is not wrapped to fewer columns than this
_NARROWEST_NAME = 14  # a name in a table is not cut to fewer columns than this: others are left out
_LONGEST_LABEL = 36  # longer words in a table are a sentence, which is wrapped: others have one line a row
_LABELS = 3  # what a figure is called gets one third of the width, and is wrapped
_GAP = 2  # columns between those of a table
_HELD = "\ue000"  # private-use character that replaces a no-break space while lines are wrapped


class _Prose(Text):
    """Text that is not broken at a no-break space, as rich would. It is printed as a plain space."""

    def wrap(self, *arguments: Any, **options: Any) -> RichLines:
        held = Text(self.plain.replace(NO_BREAK, _HELD), style=self.style)
        for span in self.spans:
            held.stylize(span.style, span.start, span.end)
        broken = held.wrap(*arguments, **options)
        for line in broken:
            line.plain = line.plain.replace(_HELD, " ")
        return broken


def print_document(document: Document, console: Console) -> None:
    """Print a document: its overview, then its reports one after another."""
    if document.overview:
        _print_table(document.overview, console)
    for i, report in enumerate(document.reports):
        if i or document.overview:
            console.print()
        _print_report(report, console)
    if document.commands:
        console.print()
    for command in document.commands:
        _say(_prose(f"`{command.line}` {command.does}", "dim"), console)


def document_text(document: Document, width: int = PLAIN_WIDTH) -> str:
    """What is printed of a document, as plain text without colors."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, NARROWEST),
        color_system=None,
        force_terminal=False,
        legacy_windows=False,
        emoji=False,  # or their table is imported, which takes 10 ms
    )
    print_document(document, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print_report(report: ReportView, console: Console) -> None:
    console.rule(Text(report.heading, style="bold"), align="left", characters="─")
    console.print(Text(report.path, style="dim"), soft_wrap=True)
    if report.about:
        _say(_prose(report.about, "dim"), console)
    console.print()
    _say(_prose(report.first, "bold").append(report.verdict, style="not bold"), console)
    for figures in report.figures:
        _say(_prose(figures), console)
    for section in report.sections:
        console.print()
        _print_section(section, console)


def _print_section(section: Section, console: Console) -> None:
    match section:
        case Table():
            _print_table(section, console)
        case Lines():
            _print_lines(section, console)
        case Account():
            _print_account(section, console)
        case Findings():
            _print_findings(section, console)


def _print_account(account: Account, console: Console) -> None:
    _say(_prose(account.title, "bold"), console)
    rows = RichTable.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "right", "left"):
        rows.add_column(justify=justify, no_wrap=justify == "right")
    for row in account.rows:
        rows.add_row(_prose(row.label), _prose(row.time), _prose(row.share), bar(row))
    rows.add_row(_prose(WINDOW, "bold"), _prose(account.total, "bold"), _prose(WHOLE))
    console.print(Padding(rows, (0, 0, 0, 2)))


def _print_findings(findings: Findings, console: Console) -> None:
    _say(_prose(findings.title, "bold"), console)
    if not findings.cards:
        _say(_prose(findings.none), console)
    for i, card in enumerate(findings.cards):
        if i:
            console.print()
        _print_finding(card, console)


def _print_finding(card: FindingCard, console: Console) -> None:
    title = _prose(f"{card.number}. ").append(card.severity, style=severity_style(card))
    _say(title.append(f" {card.rule} {card.name}: ").append(card.title, style="bold"), console)
    body = RichTable.grid(padding=(0, 2, 0, 0))
    body.add_column(max_width=console.width // _LABELS)
    for fact in card.facts:
        body.add_row(_prose(fact.label), _prose(fact.text))
    for place in card.places:
        body.add_row("where" * (place is card.places[0]), _prose(f"{place.short}  {place.cost}".rstrip()))
    if card.fix:
        body.add_row(Text("fix", style="bold"), _prose(card.fix))
    indent = (0, 0, 0, 3)
    console.print(Padding(_prose(card.summary), indent))
    console.print(Padding(body, indent))
    _print_code(card.code, console)
    if card.url:
        console.print(Text(f"        {card.url}", style="dim"), soft_wrap=True)


def _print_lines(section: Lines, console: Console) -> None:
    _say(_prose(section.title, "bold"), console)
    for item in section.items:
        line = _prose(f"{item.label}: " if item.label else "", "dim").append(item.text, style="not dim")
        console.print(Padding(line, (0, 0, 0, 2)))
    _print_code(section.code, console)


def _print_code(code: str, console: Console) -> None:
    """Code to copy is not wrapped."""
    for line in code.rstrip("\n").split("\n") if code else []:
        console.print(Text(f"        {line}".rstrip(), style="green"), soft_wrap=True)


def _print_table(section: Table, console: Console) -> None:
    """The title is as wide as the screen, however narrow the table is."""
    table = _table(section, console.width)
    shown = {str(column.header).replace("\n", " ").strip() for column in table.columns}
    lost = [column.title for column in section.columns if column.title not in shown]
    more = f" (in a wider terminal: {', '.join(lost)})" if lost else ""
    _say(_prose(section.title, "bold").append(more, "dim"), console)
    console.print(table)


def _table(section: Table, width: int) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    columns = [[str(row[i]) for row in section.rows] for i in range(len(section.columns))]
    widest = [max(map(len, cells)) for cells in columns]
    headers = _headers(section, widest)
    numbers = [column.kind is Kind.NUMBER for column in section.columns]
    prose = [
        column.kind is Kind.TEXT and size > _LONGEST_LABEL
        for column, size in zip(section.columns, widest, strict=True)
    ]
    sizes = [
        _GAP + max(size, *map(len, header.split("\n"))) for size, header in zip(widest, headers, strict=True)
    ]
    words = sum(min(size, _NARROWEST_NAME) for size in compress(sizes, prose))
    names = sorted(size for i, size in enumerate(sizes) if not (numbers[i] or prose[i]))
    room = width + _GAP - sum(compress(sizes, numbers)) - words  # nothing follows the last column
    most = width if sum(names) <= room else _name_width(names, room)
    if most == 0 and len(widest) > 2:
        return _table(section.without_last(), width)
    for i, column in enumerate(section.columns):
        shown.add_column(
            headers[i],
            justify="right" if numbers[i] else "left",
            no_wrap=numbers[i] or (most > 0 and not prose[i]),
            header_style="dim",
            overflow="fold",
        )
        if most and not (numbers[i] or prose[i]):
            columns[i] = cut_apart(columns[i], most, whole_start=column.kind is Kind.SENTENCE)
    for row in zip(*columns, strict=True):
        shown.add_row(*map(_prose, row))
    return shown


def _name_width(names: list[int], room: int) -> int:
    """Columns for each label or name, which is cut to fit; 0 where there is no room for that."""
    while names[0] <= room // len(names):  # what short names leave is for long ones
        room -= names.pop(0)
    most = room // len(names) - _GAP
    return most if most >= _NARROWEST_NAME else 0


def _headers(section: Table, widest: Sequence[int]) -> list[str]:
    """Column titles, aligned at the bottom. A title does not make a column wide: it is wrapped."""
    wrapped = [
        textwrap.wrap(column.title, max(size, _NARROWEST_HEADER), break_long_words=False)
        for column, size in zip(section.columns, widest, strict=True)
    ]
    height = max(len(title) for title in wrapped)
    return ["\n" * (height - len(title)) + "\n".join(title) for title in wrapped]


def _say(text: Text, console: Console) -> None:
    """Print one text. Without the group rich would join texts into one of its own class."""
    console.print(Group(text))


def _prose(words: str, style: str = "") -> Text:
    return _Prose(words, style=style)
