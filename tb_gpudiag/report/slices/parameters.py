"""Checks the parameters of a request: numbers within bounds, and texts. Invalid values raise UsageError."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tb_gpudiag.errors import UsageError
from tb_gpudiag.frozen import dataclass

QueryValues = Mapping[str, str]
"""The parameters as they were sent, by name."""


@dataclass(frozen=True)
class Integer:
    """A whole number."""

    name: str
    low: int = 0
    high: int = 2**31 - 1
    default: int | None = None
    required: bool = False

    def read(self, values: QueryValues) -> int | None:
        text = values.get(self.name)
        if text is None and not self.required:
            return self.default
        if text is None or not re.fullmatch(r"-?[0-9]{1,15}", text) or not self.low <= int(text) <= self.high:
            raise UsageError(
                f"The parameter {self.name} must be a whole number from {self.low} to {self.high}.",
                where=self.name,
            )
        return int(text)


@dataclass(frozen=True)
class Number:
    """A finite number, or none."""

    name: str

    def read(self, values: QueryValues) -> float | None:
        text = values.get(self.name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"The parameter {self.name} is not a number.", where=self.name)
        return value


@dataclass(frozen=True)
class Text:
    """A text: required unless there is a default, and cut off if it is too long."""

    name: str
    default: str | None = None
    among: tuple[str, ...] = ()  # anything if empty
    longest: int | None = None

    def read(self, values: QueryValues) -> str:
        value = values.get(self.name, self.default)
        if value is None or (not value and self.default is None):
            raise UsageError(f"The parameter {self.name} is missing.", where=self.name)
        if self.among and value not in self.among:
            raise UsageError(
                f"The parameter {self.name} must be one of {', '.join(self.among)}.", where=self.name
            )
        return value[: self.longest]


@dataclass(frozen=True)
class Together:
    """Parameters that a builder takes as one argument."""

    make: Callable[..., Any]
    parts: tuple[Integer | Number | Text, ...]

    def read(self, values: QueryValues) -> tuple[float | str | None, ...]:
        return tuple(part.read(values) for part in self.parts)


Parameter = Integer | Number | Text | Together
Argument = float | str | None | tuple[float | str | None, ...]


class WantedRows(NamedTuple):
    """Which rows of a table: the first `limit` in an order, of those whose name contains a text."""

    sort: str
    text: str = ""
    limit: int = 200


class Search(NamedTuple):
    """What to search for: a text or a pattern, in the names of a kind of events."""

    text: str
    regex: bool = False
    kind: str = "any"
