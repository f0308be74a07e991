"""Read a file as blocks of raw bytes: local or remote, plain or gzip, bounded, and read ahead by a thread."""

from __future__ import annotations

import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from types import TracebackType
from typing import Final, Protocol

from tb_gpudiag.errors import (
    EmptyFile,
    NoAnswer,
    TooLarge,
    TraceError,
    Unreadable,
    url_secrets,
    without_url_secrets,
)
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.remote import RemoteFile, how_to_install, is_refused, may_pass


@dataclass(frozen=True)
class Limits:
    """Bounds on one file. The defaults are far beyond what torch writes and do not exhaust a machine."""

    # The largest step reported takes more than 1 GB. A recording of such steps has about ten of them.
    max_raw_bytes: int = 16 << 30
    # gzip shrinks traces 12 to 30 times, a trace that repeats itself about 100 times. Its limit is 1032.
    max_gzip_ratio: float = 300.0
    # A file that unpacks to less than this may have any ratio.
    gzip_ratio_floor_bytes: int = 4 << 20
    # About 90 bytes each in memory, and twice that while they are sorted.
    max_events: int = 50_000_000
    # Traces are nested 6 levels deep, `args` of other writers a little deeper. A deeper event in the middle
    # of a large file goes unnoticed, up to Python's limit of recursion. It does no harm.
    max_depth: int = 256
    # The largest event seen takes 60 KB (a long list of shapes).
    max_element_bytes: int = 8 << 20
    # `deviceProperties` of 16 GPUs take 10 KB, process groups of thousands of ranks in `distributedInfo` a
    # few MB.
    max_metadata_bytes: int = 16 << 20
    # torch says that a memory snapshot easily takes gigabytes. It is read as a whole, and takes four times
    # its size in memory, or nine times without the compiled reader.
    max_snapshot_bytes: int = 4 << 30
    # Lists and dicts in a snapshot take about 100 bytes each when empty. An entry of the history has one, or
    # about fifty with C++ frames of its own.
    max_snapshot_entries: int = 50_000_000
    # In real snapshots, each of them takes 35 bytes or more; an entry without frames takes about 25.
    least_bytes_per_container: int = 12
    # Text that is parsed at a time. Measured: with 0.25 MiB, reading takes three times as long; with 1 MiB,
    # 1.5 times as long; with 8 MiB, as long, but more memory.
    chunk_bytes: int = 4 << 20
    # While it is parsed, even an empty event takes about 1 KB. When text is cut into chunks, each
    # event counts as at least this long. Real events have 150 bytes or more.
    least_event_bytes: int = 64


DEFAULT_LIMITS: Final = Limits()


GZIP_MAGIC: Final = b"\x1f\x8b"

WAITING_FOR_STORE: Final = "waiting for the store"
"""Stage of reading a file in a store that sends nothing at the moment."""

# Blocks that may wait. This many let reading and unpacking overlap with parsing.
_BLOCKS_AHEAD: Final = 2
# Read this much at the start of a file, and of each member of a gzip file.
_SHORT_READ_BYTES: Final = 4 << 10
# Compressed bytes read at a time after that. With much less, waiting for the GIL takes longer than unpacking.
_PACKED_READ_BYTES: Final = 256 << 10
GZIP: Final = 31  # what zlib calls gzip with the largest window
# Damaged gzip data is unpacked again in steps of this size, so that at most one step is lost.
_DAMAGE_STEP_BYTES: Final = 64
# The thread stops at its next block. If a dead store blocks it, nobody waits for it.
_STOP_WAIT_S: Final = 1.0
# After this long without an answer, the reader says that it waits for the store.
_SILENT_S = 5.0
# Stores quote patterns and whole answers.
_ERROR_CHARACTERS: Final = 300


def is_remote(path: str) -> bool:
    """Return whether `path` is a URL (`scheme://`) for fsspec, not a local path."""
    return "://" in path


class Readable(Protocol):
    """A file that is read from begin to end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none at the end."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None, /
    ) -> object: ...


class Source:
    """Blocks of a file's raw (unpacked) bytes, each of about Limits.chunk_bytes.

    A context manager that can be iterated over once, which raises EmptyFile, TooLarge and Unreadable. `notes`
    are final once iteration has ended.

    folder: see opening.open_local. on_silence: called with True while a store sends nothing, again and again,
    and with False when it sends.
    """

    def __init__(
        self, path: str, limits: Limits, folder: str = "", on_silence: Callable[[bool], None] = lambda _: None
    ) -> None:
        self.path = path
        self._on_silence = on_silence
        self._silent = is_remote(path)
        self._folder = folder
        self._opened: os.stat_result | None = None  # of a local file
        self.notes: list[str] = []
        self.size_bytes = 0
        self.is_packed = False  # known when the first block is there
        self.consumed_bytes = 0
        self._modified_s = 0.0
        self._limits = limits
        self._blocks: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_BLOCKS_AHEAD)
        self._stopped = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Source:
        if self._silent:
            self._on_silence(True)
        file = self._open()
        # Daemon: a store that hangs must not prevent the process from ending.
        self._thread = threading.Thread(
            target=self._read_ahead, args=(file,), name="gpudiag-read", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._room.release()
        if self._thread is not None:
            self._thread.join(_STOP_WAIT_S)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            block = self._next()
            if block is None:
                return
            if isinstance(block, Exception):
                raise block
            self._room.release()
            yield block

    def _next(self) -> bytes | Exception | None:
        limit_s = _SILENT_S if is_remote(self.path) else None
        while True:
            try:
                block = self._blocks.get(timeout=limit_s)
                break
            except queue.Empty:
                self._silent = True
                self._on_silence(True)
        if self._silent:
            self._silent = False
            self._on_silence(False)
        return block

    @property
    def share(self) -> float:
        """Share of the file that has been read, 0 to 1."""
        return min(self.consumed_bytes / self.size_bytes, 1.0) if self.size_bytes else 0.0

    def age_s(self) -> float:
        """Return the seconds since the file was last modified; infinite if the store does not say."""
        return time.time() - self._modified_s if self._modified_s else float("inf")

    def check_path(self) -> None:
        """Raise Unreadable if the path of a local file leads to another file than the one that was opened."""
        try:
            there = os.stat(self.path)
        except OSError as error:
            raise unreadable(error, self.path) from error
        if self._opened is None or not os.path.samestat(there, self._opened):
            raise Unreadable(
                "it was replaced while it was read", where=self.path, remedy="try again when it is complete"
            )

    def _open(self) -> Readable:
        file: Readable
        try:
            if is_remote(self.path):
                file = remote = RemoteFile(self.path)
                self.size_bytes, self._modified_s = remote.size_bytes, remote.modified_s
            else:
                file = open_local(self.path, self._folder)
                status = self._opened = os.fstat(file.fileno())
                self.size_bytes = status.st_size
                self._modified_s = status.st_mtime
        except (MemoryError, TraceError):
            raise
        except Exception as error:  # fsspec back ends raise anything
            raise unreadable(error, self.path) from error
        return file

    def _read_ahead(self, file: Readable) -> None:
        try:
            with file:
                for block in self._raw(file):
                    self._room.acquire()
                    if self._stopped:
                        return
                    self._blocks.put(block)
            self._blocks.put(None)
        except (TraceError, MemoryError) as error:
            self._blocks.put(error)
        except Exception as error:
            failure = unreadable(error, self.path)
            failure.__cause__ = error
            self._blocks.put(failure)

    def _raw(self, file: Readable) -> Iterator[bytes]:
        first = file.read(_SHORT_READ_BYTES)
        if not first:
            raise EmptyFile(
                "the file is empty", where=self.path, remedy="if it is still being written, try again later"
            )
        self.is_packed = first[:2] == GZIP_MAGIC
        blocks = self._unpacked(file, first) if self.is_packed else self._plain(file, first)
        total = 0
        for block in blocks:
            total += len(block)
            if total > self._limits.max_raw_bytes:
                raise TooLarge(
                    f"it has more than {self._limits.max_raw_bytes:,} bytes",
                    where=self.path,
                    remedy="record fewer steps, or raise Limits.max_raw_bytes",
                )
            yield block

    def _plain(self, file: Readable, first: bytes) -> Iterator[bytes]:
        block = first
        while block:
            self.consumed_bytes += len(block)
            yield block
            block = file.read(self._limits.chunk_bytes)

    def _unpacked(self, file: Readable, first: bytes) -> Iterator[bytes]:
        size = self._limits.chunk_bytes
        unpacker = zlib.decompressobj(wbits=GZIP)
        block = bytearray()
        raw = 0
        packed, at, step = first, 0, _SHORT_READ_BYTES
        while packed:
            feed = packed[at : at + step]
            before = unpacker.copy()  # an error loses the bytes unpacked before it
            try:
                piece = unpacker.decompress(feed, size - len(block))
            except zlib.error as error:
                block += _before_damage(before, feed, size - len(block))
                self.notes.append(f"the gzip data is damaged ({error}): the rest of the file is lost")
                break
            block += piece
            raw += len(piece)
            used = len(feed) - len(unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail)
            at += used
            self.consumed_bytes += used
            self._check_ratio(raw)
            if len(block) >= size:
                yield bytes(block)
                block = bytearray()
            if at == len(packed):
                packed, at = file.read(_PACKED_READ_BYTES), 0
            step = min(2 * step, _PACKED_READ_BYTES)
            if unpacker.eof:
                # Another member may follow. Padding and anything else after the last one is not part of the
                # data. zlib copies the bytes that a member does not need, so short steps are used: a file of
                # many tiny members must not take long.
                if packed[at : at + 1] != GZIP_MAGIC[:1]:
                    break
                unpacker, step = zlib.decompressobj(wbits=GZIP), _SHORT_READ_BYTES
        else:
            block += unpacker.flush()
        if block:
            yield bytes(block)

    def _check_ratio(self, raw: int) -> None:
        ratio = self._limits.max_gzip_ratio
        if raw > self._limits.gzip_ratio_floor_bytes and raw > ratio * self.consumed_bytes:
            raise TooLarge(
                f"it unpacks to more than {ratio:g} times its size: no trace does",
                where=self.path,
                remedy="check where the file comes from, or raise Limits.max_gzip_ratio",
            )


def _before_damage(unpacker: zlib._Decompress, packed: bytes, size: int) -> bytes:
    """Unpack at most `size` bytes of `packed`, up to where it is damaged."""
    raw = bytearray()
    for start in range(0, len(packed), _DAMAGE_STEP_BYTES):
        try:
            raw += unpacker.decompress(packed[start : start + _DAMAGE_STEP_BYTES], size - len(raw))
        except zlib.error:
            break
        if unpacker.unconsumed_tail or len(raw) >= size:
            break
    return bytes(raw)


def unreadable(error: Exception, path: str) -> Unreadable:
    """Turn an error of the store or the operating system into one line that says what to do."""
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, FileNotFoundError):
        return Unreadable("there is no such file", where=path, remedy="check the path")
    if isinstance(error, TimeoutError) and is_remote(path):
        return NoAnswer("the store does not answer", where=path, remedy="check the connection")
    if is_remote(path) and is_refused(error):
        return Unreadable("the store refuses access", where=path, remedy="check the credentials")
    if isinstance(error, PermissionError):
        return Unreadable("permission denied", where=path, remedy="check its permissions")
    if isinstance(error, IsADirectoryError):
        return Unreadable("it is a directory", where=path, remedy="name a trace file")
    if isinstance(error, ImportError):
        what = f"what reads such URLs is not installed: {error}"
        return Unreadable(what, where=path, remedy=how_to_install(path))
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = " ".join(text.split())
    if is_remote(path):
        text = _without_secrets(text, path)[:_ERROR_CHARACTERS]
        kind = NoAnswer if may_pass(error) else Unreadable
        return kind(text, where=path, remedy="check the URL, the connection and the credentials")
    return Unreadable(text, where=path, remedy="check the path and the connection")


def _without_secrets(text: str, url: str) -> str:
    """Return the text of a store's error without keys, tokens and signatures."""
    from tb_gpudiag.trace.credentials.removing import (
        without_credentials,  # it imports much, and errors are rare
    )

    for secret in url_secrets(url):
        text = text.replace(secret, "…")
    clean = without_credentials(without_url_secrets(text).encode("utf-8", "surrogatepass"))
    return clean.decode("utf-8", "replace")


def whole_file(blocks: Iterator[bytes], most_bytes: int, path: str, remedy: str) -> bytes:
    """Join the blocks of a file. Raises TooLarge, with this remedy: they have more bytes than that."""
    whole = BytesIO()  # holds no block beside the whole, and hands it out as it is
    for block in blocks:
        whole.write(block)
        if whole.tell() > most_bytes:
            raise TooLarge(f"it has more than {most_bytes:,} bytes", where=path, remedy=remedy)
    return whole.getvalue()
