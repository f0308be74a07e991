"""Cache of results on local disk: shared by any number of processes, and bounded in size.

An entry is written to a draft directory and then renamed, so that it is complete or not there at all. If the
cache cannot be written (read-only, full, no home directory), entries are kept in temporary directories until
this process ends.

    <cache>/entries/<key>/   see entry.py
    <cache>/drafts/…         being written, or about to be deleted
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tb_gpudiag
from tb_gpudiag.service.entry import META, CorruptEntry, Entry, read_entry
from tb_gpudiag.service.settings import CACHE_MB, MIB
from tb_gpudiag.version import __version__

# Increase it when the meaning of an entry's files changes.
SCHEMA = 1

# The parts of the package that a result depends on.
ANALYSIS_LAYERS = ("trace", "facts", "wording", "rules", "report")

# Writing an entry never takes this long. Older drafts were left by a process that died.
DRAFT_ABANDONED_S = 24 * 3600.0

# Precision of the time of last use. Writing it on every request would be too often.
USED_EVERY_S = 60.0

logger = logging.getLogger("tensorboard")


class Cache:
    """Entries below `directory`. `note` is empty, or one line that says why results are not kept."""

    def __init__(self, directory: Path | None, limit_bytes: int = CACHE_MB * MIB) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used_s: dict[str, float] = {}
        self._temporary: dict[str, Path] = {}  # least recently used first
        self.note = ""
        if directory is None:
            self._cannot_keep("this user has no cache directory")
        atexit.register(self._remove_temporary)

    def find(self, key: str) -> Entry | None:
        """Return the entry of this key and mark it as used; None if there is none or it cannot be read."""
        with self._lock:
            temporary = self._temporary.pop(key, None)
            if temporary is not None:
                self._temporary[key] = temporary  # now the most recently used
        if temporary is not None:
            return self._read(temporary)
        if self._directory is None:
            return None
        entry = self._read(self._directory / "entries" / key)
        if entry is not None:
            self._mark_used(key, entry.directory)
        return entry

    def drafts(self) -> list[Path]:
        """Return directories to write a new entry into, in the order to try them.

        Their parents exist, they do not.
        """
        name = f"gpudiag-{os.getpid()}-{uuid.uuid4().hex}"
        drafts = []
        if self._directory is not None:
            try:
                for directory in (self._directory, self._directory / "entries", self._directory / "drafts"):
                    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                drafts.append(self._directory / "drafts" / name)
            except OSError as error:
                self._cannot_keep(f"{self._directory} cannot be written: {error.strerror or error}")
        try:
            drafts.append(Path(tempfile.gettempdir(), name))
        except OSError:  # no writable temporary directory either
            pass
        return drafts

    def commit(self, draft: Path, key: str) -> Entry | None:
        """Turn a complete draft into an entry. If another process was faster, keep its entry instead.

        Return None if the draft is not complete or cannot be moved.
        """
        if self._directory is None or draft.parent != self._directory / "drafts":
            if self._directory is not None:
                self._cannot_keep(f"{self._directory} cannot be written, or its disk is full")
            with self._lock:
                self._temporary[key] = draft
            return self._read(draft)
        place = self._directory / "entries" / key
        try:
            os.rename(draft, place)
        except OSError:
            # There is another process's entry, or a corrupt one, which `_read` deletes.
            if self._read(place) is None:
                try:
                    os.rename(draft, place)
                except OSError:
                    pass
        self.discard(draft)
        entry = self._read(place)
        if entry is not None:
            self._mark_used(key, place)
        return entry

    def discard(self, draft: Path) -> None:
        """Delete a draft, if it is there."""
        shutil.rmtree(draft, ignore_errors=True)

    def drop(self, entry: Entry) -> None:
        """Delete a corrupt entry."""
        self._remove(entry.directory)

    def trim(self) -> None:
        """Delete the least recently used entries until the rest fits. The last used entry always stays."""
        with self._lock:
            temporary = list(self._temporary.items())
        room_bytes = self._limit_bytes
        for number, (key, path) in enumerate(reversed(temporary)):
            room_bytes -= _size_bytes(path)
            if number > 0 and room_bytes < 0:
                with self._lock:
                    self._temporary.pop(key, None)
                shutil.rmtree(path, ignore_errors=True)
        if self._directory is None:
            return
        self._remove_abandoned(self._directory / "drafts")
        room_bytes = self._limit_bytes
        for number, (_, size_bytes, path) in enumerate(sorted(self._on_disk(), reverse=True)):
            room_bytes -= size_bytes
            if number > 0 and room_bytes < 0:
                self._remove(path)

    def size_bytes(self) -> int:
        """Return the bytes of all entries, in the cache and in temporary directories."""
        with self._lock:
            temporary = list(self._temporary.values())
        return sum(size for _, size, _ in self._on_disk()) + sum(_size_bytes(path) for path in temporary)

    def _on_disk(self) -> Iterator[tuple[float, int, Path]]:
        """Yield (time of last use, bytes, path) of each entry in the cache directory."""
        if self._directory is None:
            return
        try:
            paths = list((self._directory / "entries").iterdir())
        except OSError:
            return
        for path in paths:
            try:
                yield (path / META).stat().st_mtime, _size_bytes(path), path
            except OSError:  # another process is deleting it
                continue

    def _read(self, path: Path) -> Entry | None:
        try:
            return read_entry(path)
        except CorruptEntry:
            self._remove(path)
        except OSError:
            pass
        return None

    def _mark_used(self, key: str, path: Path) -> None:
        now_s = time.time()
        if now_s - self._used_s.get(key, 0.0) < USED_EVERY_S:
            return
        self._used_s[key] = now_s
        try:
            os.utime(path / META)
        except OSError:  # a read-only cache: its owner trims it
            pass

    def _remove(self, path: Path) -> None:
        with self._lock:
            temporary = [key for key, place in self._temporary.items() if place == path]
            for key in temporary:
                del self._temporary[key]
        if temporary or self._directory is None:
            shutil.rmtree(path, ignore_errors=True)
            return
        # Rename it first, so that no other process sees half an entry.
        trash = self._directory / "drafts" / f"gpudiag-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            os.rename(path, trash)
        except OSError:
            return
        shutil.rmtree(trash, ignore_errors=True)

    def _remove_abandoned(self, drafts: Path) -> None:
        try:
            for draft in list(drafts.iterdir()):
                if time.time() - draft.lstat().st_mtime > DRAFT_ABANDONED_S:
                    shutil.rmtree(draft, ignore_errors=True)
        except OSError:
            return

    def _remove_temporary(self) -> None:
        for path in self._temporary.values():
            shutil.rmtree(path, ignore_errors=True)

    def _cannot_keep(self, reason: str) -> None:
        if not self.note:
            self.note = (
                f"Results are deleted when TensorBoard exits: {reason}. Set GPUDIAG_CACHE_DIR to keep them."
            )
            logger.warning("gpudiag: %s", self.note)


def _size_bytes(directory: Path) -> int:
    try:
        return sum(file.stat().st_size for file in directory.iterdir())
    except OSError:
        return 0


def entry_key(*parts: str) -> str:
    """Return the key for these parts and this version of the analysis: 32 hexadecimal digits."""
    text = "\0".join((str(SCHEMA), __version__, _code_digest(), *parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


@cache
def _code_digest() -> str:
    """Return a digest of the installed analysis. A checkout changes without its version changing."""
    return digest_of_code(Path(tb_gpudiag.__file__).parent)


def digest_of_code(package: Path) -> str:
    """Return a digest of the sources that decide what a result is: 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for layer in ANALYSIS_LAYERS:
        for path in sorted((package / layer).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
