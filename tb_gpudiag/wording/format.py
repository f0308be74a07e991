"""Figures, ranks and names as text: whatever shows a time, a size, a share or a name of the trace.

`frontend/src/base/format.ts` is its twin. Both must write the same text: tests run both of them on
tests/wording/format_vectors.json.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import groupby
from typing import Final

from tb_gpudiag.vocabulary.patterns import lazy_re

NAME_LIMIT = 400
"""Characters kept of a name: traces contain names of over 5,000 characters, and no view has room for one."""

NO_BREAK = "\u00a0"
"""Between a number and its unit. U+202F is narrower, but missing from many terminal fonts and code pages."""

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE_UNITS = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))

# From here on seconds become hard to read.
_MINUTES_FROM_NS = 120e9

# A name cannot end its quotes.
_OTHER_QUOTES = str.maketrans("“”„‟", '""""')

# Python rounds ties to even and JavaScript rounds them up. Both formatters round ties away from zero.
_ROUNDING = Context(prec=400, rounding=ROUND_HALF_UP)

_SENTENCE_END = lazy_re(r"(?<=[.!?])\s+(?=[A-Z])")


def time_ns(nanoseconds: float) -> str:
    """`412 ns`, `12.3 µs`, `1.23 s`, `3 min 20 s`: three significant figures."""
    if abs(nanoseconds) < 0.005:
        return f"0{NO_BREAK}ms"
    if math.isfinite(nanoseconds) and abs(nanoseconds) >= _MINUTES_FROM_NS:
        minutes, seconds = divmod(nearest(abs(nanoseconds) / 1e9), 60)
        sign = "-" if nanoseconds < 0 else ""
        return f"{sign}{minutes:,}{NO_BREAK}min {seconds}{NO_BREAK}s"
    return _scaled(nanoseconds, _TIME_UNITS)


def time_us(microseconds: float) -> str:
    """Like `time_ns`, for the µs of a Report."""
    return time_ns(microseconds * 1e3)


def size_bytes(size: float) -> str:
    """`512 B`, `1.50 GiB`: three significant figures, powers of 1,024."""
    return _scaled(size, _SIZE_UNITS)


def more_bytes(size: float) -> str:
    """`1.50 GiB more`, `512 B less`."""
    return f"{size_bytes(abs(size))} {'more' if size > 0 else 'less'}"


def share(part: float, whole: float = 1.0) -> str:
    """`39.4%`; never 0% for something, never 100% for less than all; `n/a` of nothing."""
    if not (whole > 0 and math.isfinite(part) and math.isfinite(whole)):
        return "n/a"
    percent = 100.0 * (part / whole)
    if percent == 0:
        return "0%"
    if abs(percent) < 0.05:
        return f"<{NO_BREAK}0.1%" if percent > 0 else f">{NO_BREAK}-0.1%"
    if 99.95 <= percent < 100:
        return f">{NO_BREAK}99.9%"
    return f"{_decimal(percent, 1 if abs(percent) < 99.95 else 0)}%"


def count(number: int, singular: str = "", plural: str = "") -> str:
    """`1,234`, `1 launch`, `3 launches` (the plural adds an s unless it is given)."""
    if not singular:
        return f"{number:,}"
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def ordinal(number: int) -> str:
    """Format a positive rank, such as 3rd."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def figures(value: float) -> str:
    """`229`, `9.40`, `0.06`: three significant figures; never 0 for something."""
    if not math.isfinite(value):
        return "n/a"
    if 0 < abs(value) < 0.005:
        return f"<{NO_BREAK}0.01" if value > 0 else f">{NO_BREAK}-0.01"
    return _three_figures(value)


def column_us(parts: Sequence[float], total: float) -> tuple[list[str], str]:
    """Format times that are shown under one another with their sum: one unit, and as printed they add up.

    Each is rounded up or down so that the printed parts sum to the printed total (largest remainders go up;
    `< 0.01 ms` counts as 0).
    Where the parts do not add up to the total to begin with, each is simply rounded: nothing is hidden.
    """
    if not all(map(math.isfinite, [total, *parts])):
        return [time_us(part) for part in parts], time_us(total)
    unit_us, unit, decimals = _column_unit(max([total, *parts], default=0.0))
    step = unit_us / 10**decimals
    wanted = nearest(total / step)
    whole = [math.floor(part / step) for part in parts]
    missing = wanted - sum(whole)
    if abs(sum(parts) - total) > step / 2 or not 0 <= missing <= len(parts):
        whole = [nearest(part / step) for part in parts]
    else:
        by_remainder = sorted(range(len(parts)), key=lambda i: whole[i] - parts[i] / step)
        for i in by_remainder[:missing]:
            whole[i] += 1

    def text(steps: int, exact: float) -> str:
        something = steps == 0 and exact > 0
        shown = _decimal((1 if something else steps) / 10**decimals, decimals)
        return f"{'<' + NO_BREAK if something else ''}{shown}{NO_BREAK}{unit}"

    return [text(steps, part) for steps, part in zip(whole, parts, strict=True)], text(wanted, total)


def nearest(value: float) -> int:
    """Return the nearest whole number, ties up."""
    low = math.floor(value)
    return low + (value - low >= 0.5)


def one_line(text: str, limit: int = NAME_LIMIT) -> str:
    """Make a name of the trace safe to show: bounded, on one line, with nothing that moves the cursor."""
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(map(_visible, shown))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def cut_middle(text: str, limit: int) -> str:
    """Shorten a name to `limit` characters: names differ at their ends."""
    return _cut(text, limit, (limit - 1) // 2)


def cut_apart(names: Sequence[str], limit: int, *, whole_start: bool = False) -> list[str]:
    """Shorten the names of one column to `limit` characters, by the part that leaves most of them different:
    their middle, or else more of their end or of their start. whole_start: always their end."""
    ends = [0] if whole_start else [(limit - 1) // 2, limit // 4, limit - 1 - limit // 4]
    columns = [[_cut(name, limit, end) for name in names] for end in ends]
    return max(columns, key=lambda column: len(set(column)))


def _cut(text: str, limit: int, end: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1 - end]}…{text[len(text) - end :]}"


def in_quotes(name: str, limit: int = NAME_LIMIT) -> str:
    """`“name”`: a name of the trace inside a sentence. Whoever reads it, or has it read by an assistant, sees
    where it ends, whatever it says."""
    return f"“{one_line(name, limit).translate(_OTHER_QUOTES)}”"


def around(before: str, text: str, after: str = "") -> str:
    """A part of a sentence that only some recordings have: "" without the text."""
    return f"{before}{text}{after}" if text else ""


def in_sentence(text: str) -> str:
    """`Host memory grows` as it stands inside a sentence: `host memory grows`. `GPU 0` keeps its capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _visible(character: str) -> str:
    if character in "\t\n\r\v\f\u2028\u2029":
        return " "
    # Controls and escapes; text direction and invisible marks; half characters that UTF-8 cannot encode.
    return "\ufffd" if unicodedata.category(character) in {"Cc", "Cf", "Cs"} else character


def _column_unit(largest_us: float) -> tuple[float, str, int]:
    # As time_us does, from 1 s on: both stand on one card. A thousandth of the sum is still seen.
    if largest_us >= 0.9995e6:
        return 1e6, "s", 2 if largest_us >= 100e6 else 3
    if largest_us >= 1e3:
        return 1e3, "ms", 2
    return 1.0, "µs", 1


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return "n/a"
    for i, (unit, name) in enumerate(units):
        # 999.6 µs is shown as 1.00 ms: round before choosing the unit.
        if abs(value) >= unit * 0.9995 or i == len(units) - 1:
            return f"{_three_figures(value / unit)}{NO_BREAK}{name}"
    raise AssertionError("unreachable: the last unit takes everything")


def _three_figures(value: float) -> str:
    if value == int(value) or abs(value) >= 99.95:
        return _decimal(value, 0)
    return _decimal(value, 1 if abs(value) >= 9.995 else 2)


def _decimal(value: float, places: int) -> str:
    """The exact value with this many decimals, ties away from zero, thousands with commas, and no `-0`."""
    rounded = Decimal(float(value)).quantize(Decimal(1).scaleb(-places), context=_ROUNDING)
    return f"{abs(rounded) if rounded.is_zero() else rounded:,.{places}f}"


def sentences(text: str) -> list[str]:
    """Split a text of ours into sentences: behind a full stop, before a capital letter."""
    return _SENTENCE_END.split(text)


# Ranks, or runs of consecutive ranks, that a sentence lists.
_RUNS_SHOWN: Final = 6


def numbers_text(ranks: Sequence[int]) -> str:
    """`3`, `1 and 5`, `8–15`, `0, 2, 4 and 12 more`."""
    runs = []
    for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0]):
        members = [rank for _, rank in run]
        if len(members) > 2:
            runs.append((f"{members[0]}–{members[-1]}", len(members)))
        else:
            runs += [(str(rank), 1) for rank in members]
    shown = [text for text, _ in runs[:_RUNS_SHOWN]]
    more = sum(count for _, count in runs[_RUNS_SHOWN:])
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1 and 5`."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {numbers_text(ranks)}"
