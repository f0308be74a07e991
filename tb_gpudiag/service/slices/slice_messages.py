"""Messages between TensorBoard's process and the process that cuts slices.

A question is one line of JSON. An answer is a head (state and length) and its content.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.analyses.protocol import error_of, line_of_error

_HEAD = struct.Struct("<II")
_READ_BYTES = 1 << 20

Argument = float | str | None

State = Literal["ready", "corrupt", "failed"]
_STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Question:
    """A slice to cut: which entry, what kind of slice, and the arguments of the function that cuts it."""

    path: str
    kind: str
    arguments: tuple[Argument, ...]

    def to_line(self) -> bytes:
        return json.dumps([self.path, self.kind, self.arguments]).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Question:
        path, kind, arguments = json.loads(line)
        return cls(path, kind, tuple(arguments))


@dataclass(frozen=True)
class Answer:
    """A slice as gzipped JSON (ready), an error (failed), or none: the entry is gone or damaged (corrupt)."""

    state: State
    content: bytes = b""

    @classmethod
    def of_error(cls, error: GpudiagError) -> Answer:
        return cls("failed", line_of_error(error))

    def error(self) -> GpudiagError:
        return error_of(json.loads(self.content))

    def write(self, descriptor: int) -> None:
        """Write it. Raises OSError if nobody reads."""
        unwritten = memoryview(_HEAD.pack(_STATES.index(self.state), len(self.content)) + self.content)
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]

    @classmethod
    def read(cls, read: Callable[[int], bytes]) -> Answer:
        """Read what `write` wrote. `read(size)` returns at most this many bytes, and none at the end.

        Raises:
            EOFError: the other process ended.
        """
        received = bytearray()
        size = _HEAD.size
        while len(received) < size:
            piece = read(_READ_BYTES)
            if not piece:
                raise EOFError
            received += piece
            if len(received) >= _HEAD.size:
                size = _HEAD.size + _HEAD.unpack_from(received)[1]
        return cls(_STATES[_HEAD.unpack_from(received)[0]], bytes(received[_HEAD.size :]))
