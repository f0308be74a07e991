"""A document as one short text for a language model: what limits, what to do, where, and what is not known.

It has at most TOKENS tokens, so that it costs an assistant little of its context. What is needed least is
left out, and the text says how to see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tb_gpudiag.report.views.document import Document, FindingCard, Findings, Lines, ReportView, Table
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import NO_BREAK

TOKENS: Final = 800

_MOST_CARDS: Final = 5
_PLACES: Final = 2
_CODE_LINES: Final = 8
_LONGEST_LINE: Final = 400

# A tokenizer makes one token of a short word or sign, and several of a path or a number. On reports of 13
# recordings, this counts 0 to 27% more than cl100k_base does.
_TOKEN: Final = lazy_re(r"[^\W\d_]{1,7}|\d{1,3}|[^\w\s]|_|\n")

_LEFT_OUT: Final = "Left out: see `gpudiag diagnose PATH --full`, or `--format json`."


class _Block(NamedTuple):
    """A part of the text, whole or left out. need: what is needed less has a larger number."""

    need: int
    text: str


def tokens(text: str) -> int:
    """Return about how many tokens a text has for a language model, rather too many than too few."""
    return len(_TOKEN.findall(text))


def brief_text(document: Document) -> str:
    """Return the text: of the first report, and a line for each of several."""
    blocks = list(_blocks(document))
    left = TOKENS - tokens(_LEFT_OUT)
    shown: set[int] = set()
    for at in sorted(range(len(blocks)), key=lambda at: blocks[at].need):
        needed = tokens(blocks[at].text) + 1
        if needed <= left:
            shown.add(at)
            left -= needed
    said = [block.text for at, block in enumerate(blocks) if at in shown]
    said += [_LEFT_OUT] * (len(shown) < len(blocks))
    return "\n".join(said).replace(NO_BREAK, " ") + "\n"


def _blocks(document: Document) -> Iterator[_Block]:
    """Yield the parts in reading order."""
    if document.overview:
        yield _Block(0, f"{document.overview.title}:")
        yield from (_Block(3, row) for row in _rows(document.overview))
    for view in document.reports[:1]:
        yield _Block(0, _line(f"{view.heading}: {view.about}"))
        # Where to look first is a name of the trace: it stands below, on a line of its own.
        yield _Block(0, _line(f"{view.headline}. {view.verdict}" if view.headline else view.verdict))
        yield from (_Block(4, _line(figures)) for figures in view.figures)
        cards = [card for section in view.sections if isinstance(section, Findings) for card in section.cards]
        for card in cards[:_MOST_CARDS]:
            yield from _finding(card)
        if not cards:
            yield from (_Block(1, section.none) for section in view.sections if isinstance(section, Findings))
        yield from _not_recorded(view)
        if cards[_MOST_CARDS:]:
            names = "; ".join(f"{card.rule} {card.title}" for card in cards[_MOST_CARDS:])
            yield _Block(3, _line(f"More findings: {names}"))
    if document.commands:
        said = " ".join(f"`{command.line}` {command.does}" for command in document.commands)
        yield _Block(2, f"Next: {said}")


def _finding(card: FindingCard) -> Iterator[_Block]:
    """Yield what it is, what it costs, where, and what to do; then the code."""
    first = card.number == 1
    said = [f"{card.number}. {card.severity} {card.rule} {card.name}: {card.title}"]
    said += [f"   {card.gain}"] * bool(card.gain)
    said += [f"   {place.preposition} {place.place}".rstrip() for place in card.places[:_PLACES]]
    said.append(f"   fix: {card.fix}")
    yield _Block(0 if first else 2, "\n".join(map(_line, said)))
    yield from _code(1 if first else 5, card.code, _CODE_LINES)


def _code(need: int, code: str, most: int | None = None) -> Iterator[_Block]:
    """Yield code, or its first lines."""
    lines = [f"   | {line}" for line in code.splitlines() if line.strip() and code != "# Code above"]
    if lines:
        yield _Block(need, "\n".join(map(_line, lines[:most])))


def _rows(table: Table) -> list[str]:
    """Return a line for each row: its first cell, then titles and cells."""
    titles = [column.title.lower() for column in table.columns[1:]]
    shown = (
        [f"{title} {cell}" for title, cell in zip(titles, row[1:], strict=True) if str(cell)]
        for row in table.rows
    )
    return [_line(", ".join([str(row[0]), *cells])) for row, cells in zip(table.rows, shown, strict=True)]


def _not_recorded(view: ReportView) -> Iterator[_Block]:
    """Yield what the recording lacks, and how to record it."""
    for section in view.sections:
        if section.id in ("better_recording", "defects") and isinstance(section, Lines):
            items = (_line(f"   {item.text}") for item in section.items)
            yield _Block(3, "\n".join([f"{section.title}:", *items]))
            yield from _code(4, section.code)


def _line(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
