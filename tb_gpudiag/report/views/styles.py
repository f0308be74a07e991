"""Widths, colors and bars of a document in a terminal."""

from __future__ import annotations

from rich.text import Text

from tb_gpudiag.report.views.document import AccountRow, FindingCard

PLAIN_WIDTH = 110
"""Columns where there is no terminal to ask."""

NARROWEST = 40
"""Tables need as many columns."""

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
