"""Read files in a store (S3 and others) through fsspec: in ranges, in limited time, again after failures.

Imports fsspec on use: most files are local, and it imports asyncio.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from tb_gpudiag.errors import Unreadable, without_url_secrets

# Read at a time, at first. Then twice as much while that takes less than FAST_S, for calls take time.
# After a failure, half as much: a slow network may not read a block within the limit.
BLOCK_BYTES: Final = 4 << 20
MOST_BLOCK_BYTES: Final = 32 << 20
LEAST_BLOCK_BYTES: Final = 256 << 10
FAST_S = 2.0

# Enough for a block from a store that is any use, and for the list of some 100,000 files. All attempts to
# read a block end long before the time limit of an analysis.
CALL_LIMIT_S = 30.0
LIST_LIMIT_S = 180.0

# Calls in a row that may fail, and the pause after the first one. Each pause is twice as long as the one
# before. Stores answer 503 for seconds.
ATTEMPTS: Final = 5
PAUSE_S = 0.5

# Keys for the version of a file's content. Whichever is there changes with the content.
_VERSION_KEYS: Final = ("ETag", "etag", "md5Hash", "generation", "content_md5", "created", "mtime")

# Extras of this package that install what reads and writes a store, by the URL's scheme.
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}

_FINAL_ERRORS: Final = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,
    TypeError,
    ValueError,
)


def is_refused(error: Exception) -> bool:
    """Return whether a store refuses access. Each back end says so in its own way."""
    if isinstance(error, PermissionError) or str(error).startswith("Forbidden: "):  # gcsfs
        return True
    return any(getattr(error, name, None) in (401, 403) for name in ("status_code", "status", "code"))


def may_pass(error: Exception) -> bool:
    """Return whether a store may answer later, where it failed with this error."""
    return not isinstance(error, _FINAL_ERRORS) and not is_refused(error)


class RemoteFile:
    """One version of a file in a store, read once from begin to end. A context manager.

    The constructor and `read` raise what fsspec raises (anything), and Unreadable if the file changes.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._url = url
        self._system, self._path = url_to_fs(url)
        info = self._info()
        if info.get("type") == "directory":
            raise IsADirectoryError("it is a directory")
        self.modified_s = modified_s(info)
        self._version = version(info)
        # Some web servers do not say. Those are read in one go.
        self._stream = None if info.get("size") is not None else self._system.open(self._path, "rb")
        self.size_bytes = int(info.get("size") or 0)
        self._block_size = BLOCK_BYTES
        self._begin = 0  # of the block
        self._block = b""
        self._used = 0

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size` of them; none at the end."""
        if self._stream is not None:
            return bytes(self._stream.read(size))
        if self._used == len(self._block):
            self._begin += len(self._block)
            self._block, self._used = self._next_block(), 0
        piece = self._block[self._used : self._used + size]
        self._used += len(piece)
        return piece

    def _next_block(self) -> bytes:
        if self._begin >= self.size_bytes:
            return b""
        block: bytes = call(self._system, self._range, self._begin)
        # Only now: what was read is of this version.
        if version(self._info()) != self._version:
            raise Unreadable("the file changed while it was read", where=self._url, remedy="try again")
        return block

    def _range(self, start: int, **options: Any) -> bytes:
        size = self._block_size
        end = min(start + size, self.size_bytes)
        self._block_size = max(size // 2, LEAST_BLOCK_BYTES)  # of the next attempt, if this one fails
        began_s = time.monotonic()
        block: bytes = self._system.cat_file(self._path, start=start, end=end, **options)
        if len(block) > end - start:  # a web server that knows no ranges sends all of it
            block = block[start:end]
        if not block:
            raise OSError("the connection ended")
        fast = time.monotonic() - began_s < FAST_S
        self._block_size = min(2 * size, MOST_BLOCK_BYTES) if fast else size
        return block

    def _info(self) -> dict[str, Any]:
        self._system.invalidate_cache()
        return call(self._system, self._system.info, self._path)


def call(system: Any, method: Callable[..., Any], *arguments: Any, limit_s: float = 0, **options: Any) -> Any:
    """Call a method of a file system, and again after a failure that may pass.

    limit_s: for each call; 0: CALL_LIMIT_S. Raises what the last call raised, and TimeoutError.
    """
    for attempt in range(ATTEMPTS):
        try:
            return _call_once(system, method, limit_s or CALL_LIMIT_S, arguments, options)
        except Exception as error:  # back ends raise anything
            if not may_pass(error) or attempt == ATTEMPTS - 1:
                raise
        time.sleep(PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def _call_once(
    system: Any,
    method: Callable[..., Any],
    limit_s: float,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    from fsspec.asyn import AsyncFileSystem
    from fsspec.exceptions import FSTimeoutError

    if isinstance(system, AsyncFileSystem):
        try:
            return method(*arguments, timeout=limit_s, **options)  # also ends the call
        except (TimeoutError, FSTimeoutError) as error:  # one and the same since Python 3.11
            raise TimeoutError(f"no answer in {limit_s:g} s") from error
    results: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((method(*arguments, **options), None))
        except Exception as error:
            results.put((None, error))

    # Daemon: a store that hangs must not prevent the process from ending.
    threading.Thread(target=run, name="gpudiag-store", daemon=True).start()
    try:
        result, failure = results.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError(f"no answer in {limit_s:g} s") from None
    if failure is not None:
        raise failure
    return result


class Listed(NamedTuple):
    """A file below a URL. inside: its path from there; empty if it is the URL's own. info: fsspec's."""

    url: str
    inside: str
    info: dict[str, Any]


def listed(url: str) -> list[Listed]:
    """List all files below a URL.

    Stores list by prefix: this takes a call for each thousand files, whatever folders they are in. Raises
    what fsspec raises, and FileNotFoundError if there is nothing.
    """
    from fsspec.core import url_to_fs

    system, inner = url_to_fs(url)
    system.invalidate_cache()
    found = call(system, system.find, inner, detail=True, limit_s=LIST_LIMIT_S)
    if not isinstance(found, dict):  # adlfs returns a list for the URL of a file
        found = {path: call(system, system.info, path) for path in found}
    if not found and not call(system, system.exists, inner):
        raise FileNotFoundError(url)
    return [_described(path, info, url, inner.rstrip("/"), system) for path, info in found.items()]


def _described(path: str, info: dict[str, Any], root: str, base: str, system: Any) -> Listed:
    """Describe a file that the file system calls `path`, below a URL that it calls `base`.

    Its URL starts as the user wrote it: the file system's own may have another scheme, and no host.
    """
    inside = without_url_secrets(path)[len(without_url_secrets(base)) :].strip("/")
    if "://" in path:  # over HTTP
        return Listed(path, inside, info)
    if not base or not path.startswith(base):
        return Listed(system.unstrip_protocol(path), inside, info)
    return Listed(f"{root.rstrip('/')}/{inside}".rstrip("/"), inside, info)


class Version(NamedTuple):
    """What differs between versions of a file. marks: what the store says of its content."""

    size_bytes: int
    modified_ns: int
    marks: tuple[str, ...]


def version(info: dict[str, Any]) -> Version:
    """Return the version of a file that fsspec's `info` is about."""
    marks = tuple(str(info.get(key)) for key in _VERSION_KEYS)
    return Version(int(info.get("size") or 0), int(modified_s(info) * 1e9), marks)


def modified_s(info: dict[str, Any]) -> float:
    """Return when a file was last modified, in seconds since 1970; 0 if fsspec's `info` does not say."""
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
    return 0.0


def how_to_install(url: str) -> str:
    """Return the command that installs what reads files with this URL."""
    from fsspec.registry import known_implementations

    scheme = url.partition("://")[0]
    if scheme in _EXTRAS:
        return f"pip install 'tb-gpudiag[{_EXTRAS[scheme]}]'"
    module = known_implementations.get(scheme, {}).get("class", "").partition(".")[0]
    return f"pip install {module or scheme}"
