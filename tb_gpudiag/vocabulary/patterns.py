"""Parts of patterns that several tables of names share, and the function that compiles them."""

from __future__ import annotations

import re

LONGEST_MATCHED = 1_024
"""Characters of a name that are matched. Paths of frames are shorter, and some patterns take time that grows
with the square of the length."""

PATH = r"(.*/)?"
"""Any folders in front of a path."""

PACKAGE = r"(.*/(?:(?:site|dist)-packages|lib/python3\.\d+)/)?"
"""In front of a path that begins with a package's own folder: nothing, where the profiler cut the path, or
the folder in which packages are installed."""

IN_FILE = r"\.py\(\d+\): .*"
"""Any frame of a Python file whose path precedes it."""


def any_of(*alternatives: str, flags: int = 0) -> re.Pattern[str]:
    """Compile the alternatives into one pattern, in which `/` also matches the separator of Windows."""
    return re.compile("|".join(_with_common_start(alternatives)).replace("/", r"[/\\]"), flags)


def _with_common_start(alternatives: tuple[str, ...]) -> list[str]:
    """Write PATH and PACKAGE once: a name has several folders, which are tried for each of them."""
    found = [f"(?:{p})" for p in alternatives if not p.startswith((PATH, PACKAGE))]
    for start in (PATH, PACKAGE):
        rest = [f"(?:{p[len(start) :]})" for p in alternatives if p.startswith(start)]
        if rest:
            found.append(f"{start}(?:{'|'.join(rest)})")
    return found
