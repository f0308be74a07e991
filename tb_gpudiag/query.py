"""Checks the parameters of a request: text, numbers within bounds, time spans."""

from __future__ import annotations

import math
import re

from werkzeug import wrappers

from tb_gpudiag.errors import UsageError

# Wider than any screen. The cost of a slice grows with its width.
MOST_PIXELS = 8192
DEFAULT_PIXELS = 1024

# What /find searches, and the number of matches that it returns: see report/slices/timeline_search.py, whose
# imports TensorBoard's process does without.
SEARCHED = ("any", "operator", "kernel", "module", "call", "range", "function")
DEFAULT_MATCHES = 50
MOST_MATCHES = 200
LONGEST_SEARCH = 200
# Rows of the table of runs that a page asks for first.
MOST_FIRST_RUNS = 500
# Rows of a table of operators or kernels.
MOST_ROWS = 2000
DEFAULT_ROWS = 200

LONGEST_WORD = 40
LONGEST_FILTER = 200


class Query:
    """The parameters of one request. Each method raises UsageError for a value that is not allowed."""

    def __init__(self, request: wrappers.Request) -> None:
        self._values = request.args

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not value:
            raise UsageError(f"The parameter {name} is missing.", where=name)
        return value

    def known_generation(self) -> int | None:
        """Return the generation that the page knows; None if it says nothing."""
        return self.integer_or_none("known", low=-1, high=2**32 - 1)

    def word(self, name: str, default: str) -> str:
        """Return a word. The function that cuts the slice checks it."""
        return str(self._values.get(name, default))[:LONGEST_WORD]

    def searched(self) -> tuple[str, str]:
        """Return the text that /find searches for, and the kind of events that it searches."""
        kind = self._values.get("kind", "any")
        if kind not in SEARCHED:
            raise UsageError(f"The parameter kind must be one of {', '.join(SEARCHED)}.", where="kind")
        return self._values.get("text", "")[: LONGEST_SEARCH + 1], kind

    def rows_wanted(self) -> tuple[str, int]:
        """Return the text that rows must contain, and how many rows are wanted."""
        text = str(self._values.get("filter", ""))[:LONGEST_FILTER]
        return text, self.integer("limit", DEFAULT_ROWS, low=1, high=MOST_ROWS)

    def span(self) -> tuple[float | None, float | None]:
        return self.span_and_width()[:2]

    def span_and_width(self) -> tuple[float | None, float | None, int]:
        """Return start and end in µs (None: those of the trace), and the width in pixels."""
        start_us, end_us = self.number("start_us"), self.number("end_us")
        if start_us is not None and end_us is not None and end_us <= start_us:
            raise UsageError("end_us must be greater than start_us.", where="end_us")
        return start_us, end_us, self.integer("width", DEFAULT_PIXELS, low=1, high=MOST_PIXELS)

    def moment(self, name: str) -> float:
        value = self.number(name)
        if value is None:
            raise UsageError(f"The parameter {name} is missing.", where=name)
        return value

    def number(self, name: str) -> float | None:
        text = self._values.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"The parameter {name} is not a number.", where=name)
        return value

    def integer_or_none(self, name: str, *, low: int, high: int) -> int | None:
        return self.integer(name, None, low=low, high=high) if name in self else None

    def integer(self, name: str, default: int | None, *, low: int, high: int) -> int:
        text = self._values.get(name)
        if text is None and default is not None:
            return default
        if text is None or not re.fullmatch(r"-?[0-9]{1,15}", text) or not low <= int(text) <= high:
            raise UsageError(f"The parameter {name} must be a whole number from {low} to {high}.", where=name)
        return int(text)
