"""Messages between this package and its child processes: a kind, fields as JSON, and bytes.

Each request is followed by any number of PROGRESS and PIECE messages, and then by an ANSWER or an error.
"""

from __future__ import annotations

import json
import struct
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

from tb_gpudiag import errors
from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.frozen import dataclass

_HEAD: Final = struct.Struct("<BII")  # kind, bytes of the fields, bytes of the content

# Far larger than any real message.
_MOST_FIELD_BYTES: Final = 256 << 20
_MOST_CONTENT_BYTES: Final = 1 << 30


class MessageKind(IntEnum):
    REQUEST = 1
    PROGRESS = 2  # share from 0 to 1, and stage
    PIECE = 3  # a part of a file
    ANSWER = 4
    ERROR = 5  # a GpudiagError
    LAST_ERROR = 6  # the same, and the process ends


@dataclass(frozen=True)
class ChildMessage:
    """One message. In a request, the field `where` names the file that errors are about."""

    fields: dict[str, Any] = field(default_factory=dict)
    content: bytes = b""
    kind: MessageKind = MessageKind.ANSWER

    def packed(self) -> bytes:
        fields = json.dumps(self.fields).encode("ascii")
        return _HEAD.pack(self.kind, len(fields), len(self.content)) + fields + self.content


def take(received: bytearray) -> ChildMessage | None:
    """Remove the first message from what was received; None if it is not complete yet. Raises ValueError:
    the other side sent no message."""
    if len(received) < _HEAD.size:
        return None
    kind, field_bytes, content_bytes = _HEAD.unpack_from(received)
    if field_bytes > _MOST_FIELD_BYTES or content_bytes > _MOST_CONTENT_BYTES:
        raise ValueError("a message is too large")
    middle = _HEAD.size + field_bytes
    end = middle + content_bytes
    if len(received) < end:
        return None
    found = ChildMessage(
        json.loads(received[_HEAD.size : middle]), bytes(received[middle:end]), MessageKind(kind)
    )
    del received[:end]
    return found


def of_error(error: GpudiagError) -> ChildMessage:
    fields = {"error": type(error).__name__, "what": error.what, "where": error.where, "remedy": error.remedy}
    return ChildMessage(fields, kind=MessageKind.ERROR)


def error_in(message: ChildMessage) -> GpudiagError:
    named = getattr(errors, str(message.fields["error"]), None)
    kind = named if isinstance(named, type) and issubclass(named, GpudiagError) else ProcessFailed
    what, where, remedy = (str(message.fields[name]) for name in ("what", "where", "remedy"))
    return kind(what, where=where, remedy=remedy)
