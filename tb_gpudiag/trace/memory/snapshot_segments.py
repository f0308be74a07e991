"""Read the segments and blocks of a memory snapshot into columns, and turn its stacks into text, each
distinct one once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int32, Int64
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.trace.times import MOST_DEVICES
from tb_gpudiag.trace.trace_parts import MOST_BYTES
from tb_gpudiag.vocabulary.recorded import FRAMES_OF_STACK

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
        shown = stack[:FRAMES_OF_STACK]
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


MOST_ADDRESSES: Final = 1 << 64
_UNUSED: Final = "inactive"
_SHARED_POOL: Final = (0, 0)


def read_segments(found: list[Any], stacks: SnapshotStacks) -> tuple[Segments, int]:
    """Return the columns, and the number of malformed segments and blocks, which are skipped."""
    good = [segment for segment in found if _is_segment(segment)]
    malformed = len(found) - len(good)
    good.sort(key=lambda segment: (segment.get("device", 0), segment["address"]))
    blocks: list[dict[str, Any]] = []
    addresses: list[int] = []
    owners: list[int] = []
    for number, segment in enumerate(good):
        address = segment["address"]
        for block in segment["blocks"]:
            if not _is_block(block):
                malformed += 1
                continue
            # Older snapshots have no addresses: the blocks follow one another.
            address = block.get("address", address % MOST_ADDRESSES)
            blocks.append(block)
            addresses.append(address)
            owners.append(number)
            address += block["size"]

    def column(of: Callable[[Any], Any], rows: list[Any], kind: Any) -> npt.NDArray[Any]:
        return np.fromiter([of(row) for row in rows], kind, len(rows))

    return (
        Segments(
            device=column(lambda s: s.get("device", 0), good, np.int32),
            address=column(lambda s: s["address"], good, np.uint64),
            bytes=column(lambda s: s["total_size"], good, np.int64),
            stream=column(lambda s: s["stream"] if within(s.get("stream"), 1 << 63) else 0, good, np.int64),
            pool=_pools(good),
            expandable=column(lambda s: s.get("is_expandable") is True, good, np.bool_),
            block_segment=np.array(owners, np.int32),
            block_address=np.array(addresses, np.uint64),
            block_bytes=column(lambda b: b["size"], blocks, np.int64),
            block_requested_bytes=column(_requested, blocks, np.int64),
            block_used=column(_is_used, blocks, np.bool_),
            block_stack=stacks.numbers(
                [(block if "frames" in block else _latest(block)).get("frames") for block in blocks]
            ),
        ),
        malformed,
    )


def _pools(segments: list[dict[str, Any]]) -> Int32:
    numbers: dict[tuple[int, ...], int] = {_SHARED_POOL: 0}
    found = []
    for segment in segments:
        pool = segment.get("segment_pool_id")
        if type(pool) is not tuple or not all(type(part) is int for part in pool):
            pool = _SHARED_POOL
        found.append(numbers.setdefault(pool, len(numbers)))
    return np.array(found, np.int32)


def _is_segment(segment: Any) -> bool:
    return (
        type(segment) is dict
        and type(segment.get("blocks")) is list
        and within(segment.get("address"), MOST_ADDRESSES)
        and within(segment.get("total_size"), MOST_BYTES)
        and within(segment.get("device", 0), MOST_DEVICES)
    )


def _is_block(block: Any) -> bool:
    return (
        type(block) is dict
        and within(block.get("size"), MOST_BYTES)
        and within(block.get("address", 0), MOST_ADDRESSES)
        and type(block.get("state")) is str
    )


def within(value: Any, bound: int) -> bool:
    """Return whether the value is a whole number from 0 to below the bound."""
    return isinstance(value, int) and 0 <= value < bound


def within_all(values: Int64, bound: int) -> bool:
    """Return whether all values are from 0 to below the bound."""
    return len(values) == 0 or (int(values.min()) >= 0 and int(values.max()) < bound)


def _is_used(block: dict[str, Any]) -> bool:
    return bool(block["state"] != _UNUSED)


def _requested(block: dict[str, Any]) -> int:
    """Return the size that was requested; 0 for an unused block."""
    if not _is_used(block):
        return 0
    for asked in (_latest(block).get("real_size"), block.get("requested_size")):
        if within(asked, block["size"] + 1) and asked:
            return int(asked)
    return int(block["size"])


def _latest(block: dict[str, Any]) -> dict[str, Any]:
    """Return the last allocation of the block, in snapshots of torch 1.13 and 2.0; empty in others."""
    history = block.get("history")
    first = history[0] if type(history) is list and history else None
    return first if type(first) is dict else {}
