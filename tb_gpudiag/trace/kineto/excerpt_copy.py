"""Copy the events of a window of time out of a trace, without the credentials in it.

Programs add what they like next to the events: packages, users, the environment. Only what describes the
recording is copied.
"""

from __future__ import annotations

import io
import json
import tempfile
from typing import Any, Final

from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.copying import Write
from tb_gpudiag.trace.kineto.inserted_copy import copy_with_events
from tb_gpudiag.trace.kineto.kineto import METADATA_KEYS, TRACE_EVENTS

_KEPT_KEYS: Final = METADATA_KEYS - {"host_name"}
_IN_MEMORY_BYTES: Final = 16 << 20
_PIECE_BYTES: Final = 1 << 20
_METADATA: Final = "M"
_SPACE: Final = " \t\r\n,"


class _InWindow:
    """Writes what overlaps the window, up to so many events, and the names of processes and threads."""

    def __init__(self, start_ns: int, end_ns: int, most: int, write: Write) -> None:
        self._write = write
        self._begun = False
        self._start_us, self._end_us = start_ns / 1000, end_ns / 1000
        self._room = most
        self._decoder = json.JSONDecoder()
        self.left_out = 0

    def __call__(self, elements: bytes) -> bytes:
        """Take elements of the list of events. Return none: they are written elsewhere."""
        text, at = elements.decode("utf-8", "replace"), 0
        kept = []
        while at < len(text):
            event, end = self._decoder.raw_decode(text, at)
            if self._stays(event):
                kept.append(text[at:end])  # as it is: numbers of nanoseconds have more digits than a float
            at = end
            while at < len(text) and text[at] in _SPACE:
                at += 1
        if kept:
            self._write(((",\n" if self._begun else "") + ",\n".join(kept)).encode("utf-8"))
            self._begun = True
        return b""

    def _stays(self, event: Any) -> bool:
        if not isinstance(event, dict):
            return False
        if event.get("ph") != _METADATA and not self._overlaps(event):
            return False
        if self._room == 0:
            self.left_out += 1
            return False
        self._room -= 1
        return True

    def _overlaps(self, event: dict[str, Any]) -> bool:
        start = event.get("ts")
        duration = event.get("dur", 0)
        if not isinstance(start, int | float) or not isinstance(duration, int | float):
            return False
        return start <= self._end_us and start + duration >= self._start_us


def copy_window(
    path: str, start_ns: int, end_ns: int, write: Write, *, most_events: int, folder: str = ""
) -> int:
    """Write the events that overlap a window of the file's time, and return how many did not fit.

    folder: see read_trace. Raises TraceError if the file cannot be read.
    """
    around = io.BytesIO()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as events:
        window = _InWindow(start_ns, end_ns, most_events, events.write)
        copy_with_events(path, (), around.write, mend=True, folder=folder, keep=window)
        events.seek(0)
        found = CredentialFilter()
        write(found.feed(_before_events(around.getvalue())))
        while piece := events.read(_PIECE_BYTES):
            write(found.feed(piece))
        write(found.feed(b"\n]}\n") + found.end())
    return window.left_out


def _before_events(around: bytes) -> bytes:
    """The start of the excerpt: what a file without its events says about the recording."""
    try:
        top = json.loads(around)
    except (ValueError, RecursionError):
        top = {}  # mending is for events only
    kept = {key: top[key] for key in sorted(_KEPT_KEYS & top.keys())} if isinstance(top, dict) else {}
    return json.dumps({**kept, TRACE_EVENTS: []}).removesuffix("]}").encode("utf-8") + b"\n"
