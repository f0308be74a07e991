"""Python frames: how a name spells one, and which frames are a place in the user's code."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple

from tb_gpudiag.trace.vocabulary.patterns import LONGEST_MATCHED

_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)", re.S)

# Frames of the interpreter and of libraries, whose lines the user cannot change: the place is the nearest
# other frame.
_PLUMBING_FOLDERS = (
    "torch",
    "numpy",
    "scipy",
    "triton",
    "threading",
    "torch_xla",
    "PIL",
    "cv2",
    "pandas",
    "einops",
    "tqdm",
    "sympy",
)
# Modules of the standard library that, as a bare file name, are far more often the user's own script.
_USERS_OWN = frozenset(
    {"test", "code", "profile", "trace", "main", "this", "statistics", "token", "select", "types"}
)
_SITE = re.compile(r".*[/\\](site-packages|dist-packages)[/\\]|.*[/\\]lib[/\\]python\d\.\d+[/\\]")
_GENERATED = re.compile(r"[/\\]torchinductor_\w+[/\\]")  # written by torch.compile

_NUMBER = r"(0x[0-9a-fA-F]+|\d+)"


class Frame(NamedTuple):
    """A Python frame.

    line: where the function begins, or in traces with call stacks the line that runs; 0 where it is unknown.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}({self.line}): {self.function}"


def parse_frame(name: str) -> Frame | None:
    """Parse `file(line): function`; return None for built-ins, modules and anything else."""
    found = _FRAME.fullmatch(name, 0, LONGEST_MATCHED)
    if found is None or name.startswith("<built-in"):
        return None
    return Frame(found["file"], int(found["line"][:9]), found["function"])


@lru_cache(maxsize=65_536)
def place_frame(name: str) -> Frame | None:
    """Parse a frame, unless it is plumbing: torch, NumPy and the like, the standard library."""
    frame = parse_frame(name)
    if frame is None:
        return None
    file = _SITE.sub("", frame.file)
    head, _, rest = file.replace("\\", "/").lstrip("./").partition("/")
    if head.startswith("<") or head in _PLUMBING_FOLDERS or _GENERATED.search(file):
        return None
    module = head.removesuffix(".py")
    relative = file[:1] not in "/\\" and file[1:2] != ":"
    if relative and module in sys.stdlib_module_names and (rest or module not in _USERS_OWN):
        return None
    return frame


def old_call_stack(call_stack: str) -> list[str]:
    """Split an old trace's `Call stack` into the names of its frames, innermost first."""
    return [part.strip() for part in call_stack.split(";")]


@lru_cache(maxsize=65_536)
def stack_place(call_stack: str) -> Frame | None:
    """Return the innermost frame of an old trace's `Call stack` that is not plumbing."""
    for name in old_call_stack(call_stack):
        frame = place_frame(name)
        if frame is not None and _SITE.match(frame.file) is None:
            return frame
    return None


def innermost_place(stack: str) -> Frame | None:
    """Return the innermost frame of a snapshot's stack that a user could change.

    stack: Python and C++ frames, one per line, outermost first.
    """
    for line in reversed(stack.split("\n")):
        frame = place_frame(line)
        if frame is not None and frame.file.endswith(".py"):
            return frame
    return None


def with_any_numbers(name: str) -> re.Pattern[str]:
    """Return a pattern for the name with any number in place of each of its numbers and addresses.

    A Python frame matches only itself: its number is a line.
    """
    if parse_frame(name) is not None:
        return re.compile(re.escape(name))
    return re.compile(_NUMBER.join(map(re.escape, re.split(r"0x[0-9a-fA-F]+|\d+", name))))
