"""Copy the events of a window of time out of a trace, without the credentials in it."""

from __future__ import annotations

import json
from typing import Any, Final

from tb_gpudiag.trace.credentials.credentials import CredentialFilter
from tb_gpudiag.trace.files.copying import Write
from tb_gpudiag.trace.kineto.inserted_copy import copy_with_events

_METADATA: Final = "M"
_SPACE: Final = " \t\r\n,"


class _InWindow:
    """Keeps what overlaps the window, up to so many events, and the names of processes and threads."""

    def __init__(self, start_ns: int, end_ns: int, most: int) -> None:
        self._start_us, self._end_us = start_ns / 1000, end_ns / 1000
        self._room = most
        self._decoder = json.JSONDecoder()
        self.left_out = 0

    def __call__(self, elements: bytes) -> bytes:
        text, at = elements.decode("utf-8", "replace"), 0
        kept = []
        while at < len(text):
            event, end = self._decoder.raw_decode(text, at)
            if self._stays(event):
                kept.append(text[at:end])  # as it is: numbers of nanoseconds have more digits than a float
            at = end
            while at < len(text) and text[at] in _SPACE:
                at += 1
        return ",\n".join(kept).encode("utf-8")

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
    window, found = _InWindow(start_ns, end_ns, most_events), CredentialFilter()
    copy_with_events(path, (), lambda piece: write(found.feed(piece)), mend=True, folder=folder, keep=window)
    write(found.end())
    return window.left_out
