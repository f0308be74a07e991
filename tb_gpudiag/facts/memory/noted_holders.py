"""What holds the tensors that became more, where NotingTensors has noted that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tb_gpudiag.vocabulary.frames import Frame, parse_frame, place_frame

MOST: Final = 2**50
"""No job has so many tensors, or so much memory."""


@dataclass(frozen=True)
class NotedHolder:
    """What holds tensors that came.

    frames: functions that reach them, what is nearest to them first. limit: how many entries their container
    takes, where it has fewer; 0 if none is known. type: of the container, or of its owner.
    """

    frames: tuple[tuple[Frame, ...], ...]
    type: str
    entries: int
    limit: int

    def innermost(self, stack: str) -> Frame | None:
        """Return the innermost of the functions around an allocation that reaches what is nearest to what it
        made. stack: Python frames, outermost first, one per line."""
        around = [frame for name in reversed(stack.split("\n")) if (frame := place_frame(name)) is not None]
        for frames in self.frames:
            found = next((frame for frame in around if any(_is_one(frame, noted) for noted in frames)), None)
            if found is not None:
                return found
        return None


def _is_one(frame: Frame, noted: Frame) -> bool:
    """Whether they are one function. The profiler shortens paths; a noted line of 0 is any line."""
    same = frame.function == noted.function and noted.line in (0, frame.line)
    return same and noted.file.endswith(frame.file)


def noted_holders(values: Any) -> dict[int, NotedHolder]:
    """Parse the holders of tensors by their size in bytes; leave out what is anything else."""
    entries = [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
    return {
        value["bytes"]: _holder(value)
        for value in entries
        if noted_number(value.get("bytes")) and isinstance(value.get("functions"), list)
    }


def _holder(value: dict[str, Any]) -> NotedHolder:
    entries, limit = noted_number(value.get("entries")), noted_number(value.get("limit"))
    levels = [_frames(level) for level in value["functions"] if isinstance(level, list)]
    known = isinstance(value.get("type"), str) and entries is not None and limit is not None
    return NotedHolder(
        tuple(levels), value["type"] if known else "", entries or 0, limit or 0 if known else 0
    )


def _frames(names: list[Any]) -> tuple[Frame, ...]:
    found = (parse_frame(name) for name in names if isinstance(name, str))
    return tuple(frame for frame in found if frame is not None)


def noted_number(value: Any) -> int | None:
    """Return a size or a count as it was noted; None for anything else."""
    return value if isinstance(value, int) and 0 <= value < MOST else None
