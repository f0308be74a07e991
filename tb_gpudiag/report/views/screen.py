"""A document on one screen of a terminal: verdict, account and the first findings.

Shows what fits in LINES lines at any width, and says how to see the rest.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from tb_gpudiag.report.views.document import (
    WINDOW,
    Account,
    AccountRow,
    Document,
    FindingCard,
    Findings,
    Kind,
    Lines,
    ReportView,
    Section,
    Table,
)
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import NO_BREAK, cut_middle

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 110  # columns where there is no terminal to ask
NARROWEST = 40  # tables need as many columns
_BAR_WIDTH = 28
_SEVERITY_STYLES = {"ERROR": "bold red", "WARNING": "bold yellow", "INFO": "cyan"}
_PART_STYLES = {"computing": "green", "model": "green", "copying": "cyan", "communicating": "blue"}
_IDLE_STYLE = "red"


def bar(row: AccountRow, most: int = _BAR_WIDTH) -> Text:
    """The share of a part of an account, as a bar of at most `most` columns for the whole."""
    blocks = "█" * round(row.fraction * min(max(most, 0), _BAR_WIDTH)) or ("▏" if row.fraction > 0 else "")
    return Text(blocks, style=_PART_STYLES.get(row.id, _IDLE_STYLE), no_wrap=True)


def severity_style(card: FindingCard) -> str:
    return _SEVERITY_STYLES.get(card.severity, "")


LINES: Final = 40
FINDINGS: Final = 3  # that are shown; the others are named
_BESIDE_A_TABLE: Final = 26  # lines of the first report below a table of several

# What the names of traces have in common.
_SUFFIX: Final = lazy_re(r"(\.pt)?(\.trace)?\.json(\.gz)?(?= \(simulated\)$|$)")
# The same, with when it was recorded: only recordings of one worker differ in it.
_SPAN: Final = lazy_re(r"(\.\d{12,20})?(\.pt)?(\.trace)?\.json(\.gz)?(?= \(simulated\)$|$)")

# When it was recorded, but for the last digits: recordings of one worker differ in them.
_SAME_DIGITS: Final = lazy_re(r"(?<=\.)\d{8,16}(?=\d{4}( \(simulated\))?$)")

# Share of the width that the name of a run may take in a table.
_NAME_SHARE: Final = 0.4


class _Level(NamedTuple):
    """How much of a report is shown."""

    detailed: int  # findings with cost, place and fix
    account_rows: int
    wrapped: int  # lines of one text
    rows: int = 5  # of the plan, the host's table and lists


# From most to least: the first that fits is shown.
_LEVELS: Final = (
    _Level(detailed=3, account_rows=16, wrapped=3),
    _Level(detailed=3, account_rows=8, wrapped=2),
    _Level(detailed=3, account_rows=6, wrapped=1),
    _Level(detailed=2, account_rows=6, wrapped=1),
    _Level(detailed=1, account_rows=5, wrapped=1),
    _Level(detailed=1, account_rows=4, wrapped=1, rows=2),  # where the first finding is, and its fix, always
)


def print_screen(document: Document, console: Console) -> None:
    """Print what fits one screen."""
    for line in screen(document, max(console.width, NARROWEST)):
        console.print(line, no_wrap=True, overflow="ellipsis")


def screen_text(document: Document, width: int) -> str:
    """Return the same as plain text without colors. This needs a part of rich alone."""
    return "".join(f"{line.plain.rstrip()}\n" for line in screen(document, max(width, NARROWEST)))


def screen(document: Document, width: int) -> list[Text]:
    """Return a document as at most LINES lines, with as many details as fit."""
    end = _end(document, width)
    for level in _LEVELS:
        shown = [*_body(document, level, width), *end]
        if len(shown) <= LINES:
            break
    else:
        shown = [*shown[: LINES - len(end) - 1], Text("…"), *end]
    for line in shown:
        line.truncate(width, overflow="ellipsis")
    return shown


def _body(document: Document, level: _Level, width: int) -> Iterator[Text]:
    """The overview, and the first report."""
    first = document.reports[0] if document.reports else None
    if document.overview:
        yield from _overview(document.overview, LINES - (_BESIDE_A_TABLE if first else 8), width)
    if document.overview and first:
        yield Text()
    if first:
        yield from _report(first, level, width)


def _end(document: Document, width: int) -> list[Text]:
    said = [f"`{command.line}` {command.does}" for command in document.commands]
    if document.reports:
        several = f"all {len(document.reports)} with " if len(document.reports) > 1 else ""
        said.insert(0, f"`--full` shows {several}the evidence, the code of the fixes and all tables.")
    return [Text(), *_wrapped(" ".join(said), width, 2, style="dim")]


def _report(report: ReportView, level: _Level, width: int) -> Iterator[Text]:
    yield Text(f"{report.heading} ".ljust(width, "─"), style="bold")
    yield from _wrapped(report.about, width, 2, style="dim")
    yield Text()
    verdict = _wrapped(report.first + report.verdict, width, 6)
    verdict[0].stylize("bold", 0, len(report.first))
    yield from verdict
    for figures in report.figures:
        yield from _wrapped(figures, width, 2)
    for section in _short_sections(report):
        yield Text()
        yield from _wrapped(section.title, width, 1, style="bold")
        yield from _short(section, level, width)
    for section in report.sections:
        if isinstance(section, Findings):
            yield from _findings(section, level, width, report.first)
        elif section.id in ("better_recording", "memory_notes") and isinstance(section, Lines):
            said = section.items[:1] if section.id == "better_recording" else section.items
            yield Text()
            yield from _wrapped(
                f"{section.title}: {'. '.join(item.text for item in said)}", width, 4, style="dim"
            )


def _short_sections(report: ReportView) -> Iterator[Section]:
    """A job's ranks, and where time went: on the busiest GPU, on the host, or else the memory."""
    by_id = {section.id: section for section in report.sections}
    accounts = [section for section in by_id.values() if isinstance(section, Account)]
    elsewhere = [by_id[id] for id in ("host", "slowdown", "memory") if id in by_id]
    yield from (by_id[id] for id in ("defects", "ranks") if id in by_id)
    yield from [*accounts, *elsewhere][:1]


def _short(section: Section, level: _Level, width: int) -> Iterator[Text]:
    match section:
        case Account():
            yield from _account(section, level.account_rows, width)
        case Table():
            yield from _table(section, level.rows, width)
        case Lines():
            for item in section.items[: level.rows]:
                yield from _wrapped(item.text, width, level.wrapped, indent=2)


def _account(account: Account, most: int, width: int) -> Iterator[Text]:
    rows = account.largest(most)
    labels = max(len(row.label) for row in (*rows, AccountRow("", WINDOW, "", "", 0)))
    for row in rows:
        figures = f"  {row.label:{labels}}  {row.time:>{len(account.total)}}  "
        yield Text(figures.replace(NO_BREAK, " ")).append_text(bar(row, width - len(figures)))
    yield Text(f"  {WINDOW:{labels}}  {account.total}".replace(NO_BREAK, " "), style="bold")


def _table(section: Table, most: int, width: int) -> Iterator[Text]:
    """The first column and the numbers, one line per row."""
    numbers = [i for i, column in enumerate(section.columns) if column.kind is Kind.NUMBER]
    rows = section.rows[:most]
    titles = [section.columns[i].title for i in numbers]
    sizes = [
        max(len(title), *(len(str(row[i])) for row in rows)) for i, title in zip(numbers, titles, strict=True)
    ]
    room = width - 2 - sum(size + 2 for size in sizes)
    names = [cut_middle(str(row[0]), max(room, 8)) for row in rows]
    labels = max(map(len, names))

    def line(name: str, cells: Sequence[str]) -> Text:
        figures = "".join(f"  {cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
        return Text(f"  {name:{labels}}{figures}".replace(NO_BREAK, " "))

    if len(numbers) > 1:
        yield line("", titles)
    yield from (line(name, [str(row[i]) for i in numbers]) for name, row in zip(names, rows, strict=True))


def _findings(section: Findings, level: _Level, width: int, said: str) -> Iterator[Text]:
    if not section.cards:
        yield from [Text(), *_wrapped(section.none, width, 2)]
    shown, others = section.cards[:FINDINGS], section.cards[FINDINGS:]
    for card in shown:
        if card.number <= level.detailed:
            yield Text()
        yield from _finding(card, level.wrapped, width, said, detailed=card.number <= level.detailed)
    if others:
        names = ", ".join(f"{card.severity} {card.rule} {card.name}" for card in others)
        yield from [Text(), *_wrapped(f"{len(others)} more: {names}", width, 2)]


def _finding(card: FindingCard, most: int, width: int, said: str, *, detailed: bool) -> Iterator[Text]:
    title = _wrapped(f"{card.number}. {card.severity} {card.rule} {card.title}", width, 2, indent=0)
    start = len(f"{card.number}. ")
    title[0].stylize(severity_style(card), start, start + len(card.severity))
    yield from title
    if not detailed:
        return
    place = next((place.short for place in card.places if place.short), "")
    place *= place not in said
    # Half of a range would say something else.
    lines = (("", card.gain, "", max(most, 2)), ("", place, "", most), ("fix", card.fix, "green", most))
    for label, text, style, line_count in lines:
        if text:
            yield from _wrapped(f"{label} {text}".strip(), width, line_count, indent=3, style=style)


def _overview(table: Table, most: int, width: int) -> Iterator[Text]:
    """One line per row: its name, the numbers, and the last column of text, cut to the width."""
    yield from _wrapped(table.title, width, 3, style="bold")
    numbers = [i for i, column in enumerate(table.columns) if column.kind is Kind.NUMBER]
    chosen = [0, *numbers, max(set(range(len(table.columns))) - set(numbers))]
    lines = [[table.columns[i].title for i in chosen]]
    shorter = Counter(_SPAN.sub("", str(row[0])) for row in table.rows)
    for row in table.rows[:most]:
        name, *cells = (str(row[i]) for i in chosen)
        common = _SPAN if shorter[_SPAN.sub("", name)] == 1 else _SUFFIX
        name = _SAME_DIGITS.sub("…", common.sub("", name))
        lines.append([cut_middle(name, round(width * _NAME_SHARE)), *cells])
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [
            f"{cell:>{size}}" if table.columns[i].kind is Kind.NUMBER else f"{cell:{size}}"
            for i, cell, size in zip(chosen, line, sizes, strict=True)
        ]
        yield from _wrapped("  ".join(cells), width, 1, style="" if number else "dim")
    if len(table.rows) > most:
        yield Text(f"… and {len(table.rows) - most} more")


def _wrapped(words: str, width: int, most: int, *, indent: int = 0, style: str = "") -> list[Text]:
    """Wrap a text to at most `most` lines; what follows is cut off."""
    room = " " * indent
    words = words.replace("\n", " ")
    if most == 1:
        line = f"{room}{words.rstrip()}"
        found = [line if len(line) <= width else f"{line[: width - 1]}…"]
    else:
        found = textwrap.wrap(
            words,
            width,
            initial_indent=room,
            subsequent_indent=room,
            max_lines=most,
            placeholder=" …",
            break_on_hyphens=False,
        )
    return [Text(line.replace(NO_BREAK, " "), style=style) for line in found]
