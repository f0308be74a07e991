"""TensorBoard's side of the shared cache: look for results of others, and share our own.

Both happen on a separate thread that nothing waits for: the storage may be slow, or not answer at all.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.caches.cache_entry import CacheEntry, open_file
from tb_gpudiag.service.caches.claims import content_key, fingerprint
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.index.runs import place_of
from tb_gpudiag.trace.files.find import TraceFile

# Results that may wait for slow storage. Further results are not shared: the next user analyzes the trace.
MOST_WAITING: Final = 100

Summary = Mapping[str, str]

logger = logging.getLogger("tensorboard")


class Sharing:
    """Shares results through `shared`; does nothing if `shared` is None.

    on_found(key, summary) is called on the thread for each result of another user.
    """

    def __init__(self, shared: SharedCache | None, on_found: Callable[[str, Summary], None]) -> None:
        self._shared = shared
        self._on_found = on_found
        self._changed = threading.Condition()
        self._wanted: dict[str, TraceFile] = {}  # by key in the private cache
        self._offered: deque[CacheEntry] = deque(maxlen=MOST_WAITING)
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def note(self) -> str:
        """One line that says why results are not shared; empty if they are."""
        return self._shared.note if self._shared is not None else ""

    def look_for(self, wanted: Mapping[str, TraceFile]) -> None:
        """Look for results of these traces, and stop looking for results of other traces."""
        with self._changed:
            self._wanted = dict(wanted)
            self._wake()

    def offer(self, entry: CacheEntry) -> None:
        """Share a result, if TensorBoard's own analysis made it and others can recognize its trace."""
        if entry.summary.get("key"):
            with self._changed:
                self._offered.append(entry)
                self._wake()

    def close(self) -> None:
        """Stop, without waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Start or wake the thread, if there is work. The lock is held."""
        if self._shared is None or self._closed or not (self._wanted or self._offered):
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._shared,), name="gpudiag-share", daemon=True
            )
            self._thread.start()
        self._changed.notify_all()

    def _run(self, shared: SharedCache) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted or self._offered)
                if self._closed:
                    return
                entry = self._offered.popleft() if self._offered else None
                wanted, self._wanted = (self._wanted, {}) if entry is None else ({}, self._wanted)
            try:
                if entry is not None:
                    _copy(entry, shared)
                else:
                    self._look(wanted, shared)
            except Exception as error:  # the thread must survive unexpected errors
                logger.warning("gpudiag: results could not be shared: %s", type(error).__name__)

    def _look(self, wanted: Mapping[str, TraceFile], shared: SharedCache) -> None:
        there = shared.keys()
        for key, file in wanted.items():
            if self._closed:
                return
            for common in (content_key(kind, file) for kind in ("diagnose", "report")):
                found = shared.find(common, fingerprint(file), summary_only=True) if common in there else None
                if found is not None and _is_readable(found[0].summary):
                    self._on_found(key, found[0].summary)
                    break


def _is_readable(summary: Summary) -> bool:
    try:
        place_of(summary["row"])
        from_json(summary["row"], pb.RunRow)
        pb.Verdict.Limiter.Value(summary["limiter"])
    except Exception:  # not a row: the trace is analyzed instead
        return False
    return True


def _copy(entry: CacheEntry, shared: SharedCache) -> None:
    with contextlib.suppress(OSError, CorruptEntry), open_file(entry.path) as source:
        shared.put(entry.summary["key"], lambda file: shutil.copyfileobj(source, file, 1 << 20))
