"""Python frames: how a name spells one, and which frames are a place in the user's code."""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, any_of, lazy_re, rows_of

_FRAME = lazy_re(r"(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)", re.S)

ANY_FRAME = any_of(r"[^<].*\(\d+\): .*", flags=re.S)
"""A Python function: built-ins begin with `<`."""

# Frames of the interpreter and of libraries, whose lines the user cannot change: the place is the nearest
# other frame.
_PLUMBING_FOLDERS = frozenset(name for kind, name in rows_of("libraries.tsv") if kind == "plumbing")
# Packages between the user's code and torch. The profiler cuts a path to where packages are installed, so
# only its first folder shows that a file is not the user's. Their functions are places, because the user
# chooses how to call them.
_LIBRARY_FOLDERS = frozenset(name for kind, name in rows_of("libraries.tsv") if kind == "library")
# Modules of the standard library that, as a bare file name, are far more often the user's own script.
_USERS_OWN = frozenset(
    {"test", "code", "profile", "trace", "main", "this", "statistics", "token", "select", "types"}
)
_SITE = lazy_re(r".*[/\\](site-packages|dist-packages)[/\\]|.*[/\\]lib[/\\]python\d\.\d+[/\\]")
_GENERATED = lazy_re(r"[/\\]torchinductor_\w+[/\\]", re.A)  # written by torch.compile

COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""They have frames of their own, some only in older Pythons, but are a part of the function around them."""

_A_FUNCTION = "f"
_BUILT_IN = lazy_re(r"<built-in (?:method|function) (?P<name>.*?)(?: object at 0x[0-9a-fA-F]+)?>", re.S)

_DIGITS_OF_NO_LINE = 10
_NUMBER = r"(0x[0-9a-fA-F]+|\d+)"


class LineKind(IntEnum):
    """What the number in a frame is. Numbered as in report.proto."""

    UNKNOWN = 0
    DEFINITION = 1  # where the function is defined: Python frames of torch 1.12 and later
    RUNNING = (
        2  # the line that ran: call stacks of torch 1.11 and earlier and 2.14 and later, memory snapshots
    )


class Frame(NamedTuple):
    """A Python frame. Fields that are unknown are empty. The frontend's `codePlace` writes the same text."""

    file: str
    line: int
    function: str
    line_kind: LineKind = LineKind.DEFINITION

    def __str__(self) -> str:
        """`train.py:119 in evaluate` if that line ran, else `resize (image.py, defined at line 390)`."""
        if self.file and self.line and self.line_kind is not LineKind.DEFINITION:
            spot = f"{self.file}:{self.line}"
            return f"{spot} in {self.function}" if self.function else spot
        where = f"{self.file}, defined at line {self.line}" if self.file and self.line else self.file
        return f"{self.function} ({where})" if self.function and where else self.function or where

    @property
    def preposition(self) -> str:
        """`at` a line that ran, `in` a function."""
        return "at" if self.line and self.line_kind is LineKind.RUNNING else "in"

    @property
    def where(self) -> str:
        """`in f (train.py)`."""
        return f"{self.preposition} {self}"

    def without_line(self) -> Frame:
        """Return the frame of the same function at no line."""
        return self._replace(line=0, line_kind=LineKind.UNKNOWN)


def after_word(frame: Frame | None) -> str:
    """` in f (train.py)`, for the end of a clause; "" without a frame."""
    return f" {frame.where}" if frame is not None else ""


def parse_frame(name: str, line_kind: LineKind = LineKind.DEFINITION) -> Frame | None:
    """Parse `file(line): function`; return None for built-ins, modules and anything else."""
    found = _FRAME.fullmatch(name, 0, LONGEST_MATCHED)
    if found is None or name.startswith("<built-in"):
        return None
    line = int(found["line"]) if len(found["line"]) < _DIGITS_OF_NO_LINE else 0
    return Frame(found["file"], line, found["function"], line_kind)


@lru_cache(maxsize=65_536)
def place_frame(name: str, line_kind: LineKind = LineKind.DEFINITION) -> Frame | None:
    """Parse a frame, unless it is plumbing: torch, NumPy and the like, the standard library. A comprehension
    whose line is not known is said by the function around it."""
    frame = parse_frame(name, line_kind)
    if frame is None or (frame.function in COMPREHENSIONS and line_kind is LineKind.DEFINITION):
        return None
    site = _SITE.match(frame.file)
    file = frame.file if site is None else frame.file[site.end() :]
    head, rest = _head(file)
    if not head or head.startswith(("<", "??")) or head in _PLUMBING_FOLDERS or _GENERATED.search(file):
        return None
    module = head.removesuffix(".py")
    relative = file[:1] not in "/\\" and file[1:2] != ":"
    if relative and module in sys.stdlib_module_names and (rest or module not in _USERS_OWN):
        return None
    return frame


def at_line(frame: Frame | None, called_from: str) -> Frame | None:
    """Return the frame at the line of a call in it, such as `train.py:12`; None if that is no line of it."""
    file, _, line = called_from.rpartition(":")
    if frame is None or file != frame.file or not line.isdecimal() or len(line) >= _DIGITS_OF_NO_LINE:
        return None
    return frame._replace(line=int(line), line_kind=LineKind.RUNNING)


def is_installed(frame: Frame) -> bool:
    """Return whether a frame that is a place is in an installed package, not in the user's project."""
    if _SITE.match(frame.file):
        return True
    relative = frame.file[:1] not in "/\\" and frame.file[1:2] != ":"
    head, rest = _head(frame.file)
    return relative and bool(rest) and head in _LIBRARY_FOLDERS


def own_function(name: str) -> str:
    """Return the function that a frame's name is, if it is in the user's project; "" otherwise."""
    frame = place_frame(name)
    return "" if frame is None or is_installed(frame) else frame.function


def is_own(name: str) -> bool:
    """Return whether a frame's name is a function of the user's project, or a comprehension in one."""
    frame = parse_frame(name)
    if frame is None or frame.function not in COMPREHENSIONS:
        return bool(own_function(name))
    return bool(own_function(f"{frame.file}({frame.line}): {_A_FUNCTION}"))


def called(name: str) -> str:
    """Return how to say a call: `step (gymnasium/core.py)`, or `sort of list` of a built-in."""
    if (built_in := _BUILT_IN.fullmatch(name, 0, LONGEST_MATCHED)) is not None:
        return built_in["name"]
    frame = parse_frame(name)
    return name if frame is None else str(frame.without_line())


def _head(file: str) -> tuple[str, str]:
    """Split a path after its first folder."""
    head, _, rest = file.replace("\\", "/").lstrip("./").partition("/")
    return head, rest


def old_call_stack(call_stack: str) -> list[str]:
    """Split an old trace's `Call stack` into the names of its frames, innermost first."""
    return [part.strip() for part in call_stack.split(";")]


@lru_cache(maxsize=65_536)
def stack_place(call_stack: str) -> Frame | None:
    """Return the innermost frame of an old trace's `Call stack` that is not plumbing."""
    for name in old_call_stack(call_stack):
        frame = place_frame(name, LineKind.RUNNING)
        if frame is not None and _SITE.match(frame.file) is None:
            return frame
    return None


def innermost_place(stack: str) -> Frame | None:
    """Return the innermost frame of a snapshot's stack that a user could change.

    stack: Python and C++ frames, one per line, outermost first.
    """
    return next(iter(places_outwards(stack)), None)


def places_outwards(stack: str) -> list[Frame]:
    """Return all such frames, innermost first. A comprehension has the name of the function around it."""
    running, found = LineKind.RUNNING, []
    for line in reversed(stack.split("\n")):
        if (frame := place_frame(line, running)) is not None and frame.file.endswith(".py"):
            found.append(frame)
    for i, frame in enumerate(found):
        if frame.function in COMPREHENSIONS:
            around = (one.function for one in found[i:] if one.file == frame.file)
            named = (function for function in around if function not in COMPREHENSIONS)
            found[i] = frame._replace(function=next(named, frame.function))
    return found


def with_any_numbers(name: str) -> re.Pattern[str]:
    """Return a pattern for the name with any number in place of each of its numbers and addresses.

    A Python frame matches only itself: its number is a line.
    """
    if parse_frame(name) is not None:
        return lazy_re(re.escape(name))
    return lazy_re(_NUMBER.join(map(re.escape, re.split(r"0x[0-9a-fA-F]+|\d+", name))))
