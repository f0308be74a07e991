"""Turn the stacks of a memory snapshot into text, each distinct stack once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int32

# The innermost frames are kept. With C++ frames, about forty are between an allocation and the user's line.
FRAMES_LIMIT: Final = 128
# Names of C++ templates take up to kilobytes. After a few hundred characters, they say nothing new.
NAME_LIMIT: Final = 300
# Tens of thousands of stacks of fifty frames take about 100 MB.
TEXT_LIMIT: Final = 256 << 20
# A list that appears again, or has the same frames as another one, is recognized without reading its frames.
# This many lists are remembered.
_KNOWN_LISTS: Final = 200_000

# C++ frames of the interpreter and of the code that captures the stack. torch's own viewer also skips them.
_NOISE_NAMES: Final = (
    "unwind::unwind",
    "CapturedTraceback::gather",
    "gather_with_cpp",
    "_start",
    "__libc_start_main",
    "PyEval_",
    "PyObject_",
    "PyFunction_",
)
_NOISE_FILES: Final = (
    "core/boxing",
    "/Register",
    "/Redispatch",
    "pythonrun.c",
    "Modules/main.c",
    "Objects/call.c",
    "Objects/methodobject.c",
    "pycore_ceval.h",
    "ceval.c",
    "cpython/abstract.h",
)


class SnapshotStacks:
    """Numbers stacks and renders them as text.

    Stacks are recognized by the identity of their lists and frames, which must therefore outlive this object.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []  # frames "file(line): function", outermost first, one per line
        self.left_out = 0  # distinct stacks beyond TEXT_LIMIT
        self._size = 0
        self._of_list: dict[int, int] = {}
        self._of_frames: dict[tuple[int, ...], int] = {}
        self._of_content: dict[tuple[Any, ...], int] = {}
        self._of_text: dict[str, int] = {}
        self._frame: dict[Any, str] = {}

    def numbers(self, stacks: Iterable[Any]) -> Int32:
        """Return indices into `texts`, shape (n,); NONE for an empty stack and for anything else.

        A stack is a list of {"filename", "line", "name"}, innermost first, as torch writes them.
        """
        known, number = self._of_list, self._number
        found = [known[id(s)] if id(s) in known else number(s) for s in stacks]
        return np.array(found, np.int32)

    def _number(self, stack: Any) -> int:
        if type(stack) is not list or not stack:
            return NONE
        shown = stack[:FRAMES_LIMIT]
        frames = tuple(map(id, shown))
        found = self._of_frames.get(frames)
        if found is None:
            found = self._by_content(shown)
            if len(self._of_frames) < _KNOWN_LISTS:
                self._of_frames[frames] = found
        if len(self._of_list) < _KNOWN_LISTS:
            self._of_list[id(stack)] = found
        return found

    def _by_content(self, stack: list[Any]) -> int:
        try:
            content = tuple([(f["filename"], f["line"], f["name"]) for f in stack])
            found = self._of_content.get(content)
        except (TypeError, KeyError, IndexError):  # a frame is malformed
            content = tuple([_content(f) for f in stack])
            found = self._of_content.get(content)
        if found is None:
            found = self._of_content[content] = self._rendered(content)
        return found

    def _rendered(self, content: tuple[Any, ...]) -> int:
        lines = [self._line(frame) for frame in content]
        text = "\n".join([line for line in reversed(lines) if line])
        if not text:
            return NONE
        found = self._of_text.get(text)
        if found is None:
            if self._size + len(text) > TEXT_LIMIT:
                self.left_out += 1
                return NONE
            self._size += len(text)
            found = self._of_text[text] = len(self.texts)
            self.texts.append(text)
        return found

    def _line(self, frame: Any) -> str:
        line = self._frame.get(frame)
        if line is None:
            line = self._frame[frame] = _line(*frame)
        return line


def _content(frame: Any) -> tuple[Any, Any, Any]:
    """Return the file, line and function of any value; empty if it is not a frame."""
    if type(frame) is not dict:
        return "", 0, ""
    values = frame.get("filename"), frame.get("line"), frame.get("name")
    file, line, name = (value if type(value) in (str, int) else "" for value in values)
    return file, line, name


def _line(file: Any, line: Any, name: Any) -> str:
    """Render one frame; empty for frames that say nothing."""
    if type(file) is not str or type(name) is not str or not (file or name):
        return ""
    file, name = file[-NAME_LIMIT:], name[:NAME_LIMIT]  # the end of a path says most
    if not file.endswith(".py") and (
        any(noise in name for noise in _NOISE_NAMES) or any(noise in file for noise in _NOISE_FILES)
    ):
        return ""
    number = line if type(line) is int and 0 <= line < 2**31 else 0
    return f"{_one_line(file)}({number}): {_one_line(name)}"


def _one_line(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())
