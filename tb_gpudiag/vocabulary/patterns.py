"""Parts of patterns that several tables of names share, and the functions that make patterns of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, AnyStr, Generic, cast

LONGEST_MATCHED = 1_024
"""Characters of a name that are matched. Paths of frames are shorter, and `re`, which matches single names,
may take time that grows with the square of the length."""

PATH = r"(.*/)?"
"""Any folders in front of a path."""

PACKAGE = r"(.*/(?:(?:site|dist)-packages|lib/python3\.\d+)/)?"
"""In front of a path that begins with a package's own folder: nothing, where the profiler cut the path, or
the folder in which packages are installed."""

IN_FILE = r"\.py\(\d+\): .*"
"""Any frame of a Python file whose path precedes it."""


class _NotCompiled(Generic[AnyStr]):
    """Has what every pattern has, and what else a compiled one has from the first use of it on."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self.flags)
        self.__dict__.update({each: getattr(compiled, each) for each in dir(compiled) if each[0] != "_"})
        return getattr(compiled, name)


def lazy_re(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled when it is first used.

    This package has five hundred, of which a short command uses a few: compiling all took it a fifth of its
    time."""
    return cast("re.Pattern[AnyStr]", _NotCompiled(pattern, flags))


def any_of(*alternatives: str, flags: int = 0) -> re.Pattern[str]:
    """Make one pattern of the alternatives, in which `/` also matches the separator of Windows.

    `\\w` and the like are ASCII, as for RE2 (see name_matcher.py)."""
    return lazy_re("|".join(_with_common_start(alternatives)).replace("/", r"[/\\]"), flags | re.ASCII)


def not_after(text: str) -> str:
    """Return a pattern that matches what precedes something, at most len(text) characters, unless it is this
    text. RE2 has no `(?<!text)`."""
    ends = [f"[^{text[-1 - n]}]{text[len(text) - n :]}" for n in range(len(text))]
    begins = [f"^{text[len(text) - n :]}" for n in range(len(text))]
    return f"(?:{'|'.join([*ends, *begins])})"


def not_before(text: str) -> str:
    """Return a pattern that matches what follows something, unless it is this text, like `(?!text)`."""
    ends = [f"{text[:n]}[^{text[n]}]" for n in range(len(text))]
    return f"(?:{'|'.join([*ends, *(f'{text[:n]}$' for n in range(len(text)))])})"


def _with_common_start(alternatives: tuple[str, ...]) -> list[str]:
    """Write PATH and PACKAGE once: a name has several folders, which are tried for each of them."""
    found = [f"(?:{p})" for p in alternatives if not p.startswith((PATH, PACKAGE))]
    for start in (PATH, PACKAGE):
        rest = [f"(?:{p[len(start) :]})" for p in alternatives if p.startswith(start)]
        if rest:
            found.append(f"{start}(?:{'|'.join(rest)})")
    return found


def rows_of(table: str) -> list[list[str]]:
    """Return the rows of a table in this folder, such as `task_names.tsv`, without its comments."""
    text = Path(__file__).with_name(table).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
