"""Claims of traces in a shared cache, so that two processes do not analyze the same one at once. A trace is
known, whatever its path is for each user, by its name, size, time, first and last bytes.

The end of a compressed file is a checksum of its whole content, and writing a file sets its time.

A claim is a file that its owner touches while it works. A claim is only advice: whoever waits gives up when
the file is no longer touched, or after a while, and analyzes the trace, too. Clocks of machines are not
compared: each process watches with its own clock whether the file's time changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tb_gpudiag.errors import TraceError
from tb_gpudiag.service.caches.cache import entry_key
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.source import is_remote

_END_BYTES: Final = 64 << 10


def content_key(kind: str, file: TraceFile) -> str:
    """Return the key of a result of this kind for all users of this version; "" if the file has none.

    A result with a log or a capture that its user named is not for others, and dumps are several files.
    The file is not opened: two traces may have the same key, but their fingerprints differ.
    """
    is_folder = file.kind in ("hang", "clock")
    is_shared = file.modified_ns and not is_folder and not file.torch_trace and not file.capture
    if is_remote(file.path) or not is_shared:
        return ""
    return entry_key(
        "content", kind, os.path.basename(file.path), str(file.size_bytes), str(file.modified_ns)
    )


def fingerprint(file: TraceFile) -> str:
    """Open the trace and return a hash that tells it from others: 32 hexadecimal digits.

    Return "" if this user cannot open it, or if it has changed since it was listed.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open_local(file.path, file.folder) as trace:
            status = os.fstat(trace.fileno())
            if (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.modified_ns):
                return ""
            digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
            digest.update(trace.read(_END_BYTES))
            trace.seek(max(status.st_size - _END_BYTES, 0))
            digest.update(trace.read(_END_BYTES))
    except (OSError, TraceError):
        return ""
    return digest.hexdigest()


# A smaller trace takes a second or two: waiting for another process is not worth it.
LEAST_BYTES: Final = 2 << 20

# How often an owner touches its claim. On NFS, others see the change some seconds later.
TOUCH_EVERY_S = 2.0

# The owner of a claim that was not touched for this long has died, or is about to have its result.
ABANDONED_AFTER_S = 10.0

# Reading results of others takes seconds, unless their storage is down. Then, the trace is analyzed.
LOOK_AT_MOST_S: Final = 30.0

# Most analyses take less. A process that hangs may still touch its claim.
WAIT_AT_MOST_S = 300.0

# A small trace takes tenths of a second. Each pause between looks is twice the one before, up to a maximum.
LOOK_FIRST_S = 0.1
LOOK_EVERY_S = 1.0

WAITING: Final = "waiting for the result of another process (shared cache)"

T = TypeVar("T")


class Claim:
    """A claim of one result in a shared cache, by this process or another one. Its methods raise nothing."""

    def __init__(self, shared: SharedCache, key: str) -> None:
        self._shared = shared
        self._key = key
        self._mine = -1  # descriptor
        # The descriptor is never used after it is closed: by then, its number may be another file's.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._seen: tuple[int, int] | None = None
        self._seen_s = 0.0

    def is_anothers(self) -> bool:
        """Return whether another process has the claim and is alive. Otherwise, claim it, if possible."""
        try:
            if self._mine < 0:
                self._claim()
        except FileExistsError:
            if not self._is_abandoned():
                return True
            self._shared.unclaim(self._key)
            with contextlib.suppress(OSError):  # another process was faster
                self._claim()
        except OSError:  # the directory is read-only or gone: analyze without a claim
            pass
        return False

    def _claim(self) -> None:
        self._mine = self._shared.claim(self._key)
        threading.Thread(target=self._touch, name="gpudiag-claim", daemon=True).start()

    def release(self) -> None:
        """Delete the claim, if it is ours."""
        self._ended.set()
        with self._lock:
            if self._mine >= 0:
                self._shared.unclaim(self._key, self._mine)
                self._mine = -1

    def _is_abandoned(self) -> bool:
        """Return whether the owner no longer touches the claim, or whether that cannot be seen."""
        try:
            seen = self._shared.claimed(self._key)
        except FileNotFoundError:  # just released
            return False
        except OSError:
            return True
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen, self._seen_s = seen, now_s
        return now_s - self._seen_s > ABANDONED_AFTER_S

    def _touch(self) -> None:
        with contextlib.suppress(OSError):  # the storage is gone
            while not self._ended.wait(TOUCH_EVERY_S):
                with self._lock:
                    if self._mine >= 0:
                        os.utime(self._mine)


def claim_of(kind: str, file: TraceFile, shared: SharedCache | None) -> Claim | None:
    """Return the claim of this kind of result; None if no store keeps it or the trace is small."""
    if shared is None or file.size_bytes < LEAST_BYTES or (shared.is_own and kind != "digest"):
        return None
    key = content_key(kind, file)
    return Claim(shared, key) if key else None


def known_or_claimed(
    look: Callable[[], T | None], claim: Claim | None, progress: Callable[[float, str], None]
) -> T | None:
    """Return the result of others, after waiting for whoever has the claim. None: analyze the trace here."""
    end_s = time.monotonic() + WAIT_AT_MOST_S
    pause_s = LOOK_FIRST_S
    while True:
        found = _soon(look)
        if found is not None or claim is None or time.monotonic() > end_s:
            return found
        if not _soon(claim.is_anothers):
            found = _soon(look)  # it may have appeared just before the claim
            if found is not None:
                claim.release()
            return found
        progress(0.0, WAITING)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_EVERY_S)


def _soon(ask: Callable[[], T]) -> T | None:
    """Return what `ask` returns; None if the storage does not answer within LOOK_AT_MOST_S."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(ask()), name="gpudiag-look", daemon=True)
    thread.start()
    thread.join(LOOK_AT_MOST_S)
    return found[0] if found else None
