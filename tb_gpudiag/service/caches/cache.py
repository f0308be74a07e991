"""Cache of results on local disk: shared by any number of processes, and bounded in size.

An entry is written to a draft and then renamed, so that it is complete or not there at all. If the cache
cannot be written (read-only, full, no home directory) or others can write to it, entries are kept in a
temporary directory until this process ends.

    <cache>/entries/<key>.gpudiag   see cache_entry.py
    <cache>/drafts/…                being written, or about to be deleted
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tb_gpudiag
from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.service.caches.cache_entry import CacheEntry, read_entry, why_not_private
from tb_gpudiag.service.settings import CACHE_MB, MIB
from tb_gpudiag.version import __version__
from tb_gpudiag.vocabulary.patterns import lazy_re

# Increase it when the format or meaning of entries changes.
SCHEMA = 3

# The parts of the package that a result depends on.
ANALYSIS_LAYERS = ("trace", "facts", "wording", "rules", "report", "digest", "jobs")

SUFFIX = ".gpudiag"
DRAFT_PREFIX = "gpudiag-"
_OURS = {"entries": lazy_re(rf".+{re.escape(SUFFIX)}"), "drafts": lazy_re(rf"{re.escape(DRAFT_PREFIX)}.+")}

# Writing an entry never takes this long. An older draft was left behind by a process that died.
DRAFT_ABANDONED_S = 24 * 3600.0

# A job is answered when the digests of all its ranks are there. Digests are this small, so they stay longer
# than entries with timelines, which are a hundred times as large.
SMALL_BYTES = 512 * 1024
SMALL_STAYS_LONGER_S = 7 * 24 * 3600.0

# The time of last use is updated this often. Updating it on every request would be too often.
USED_EVERY_S = 60.0

logger = logging.getLogger("tensorboard")


class Cache:
    """Entries below `directory`. `note` is empty, or one line that says why results are not kept.

    The constructor does not touch the directory, which may be on a file system that does not answer.
    """

    def __init__(self, directory: Path | None, limit_bytes: int = CACHE_MB * MIB) -> None:
        self._directory = directory
        self._checked = False
        self._limit_bytes = limit_bytes
        self._used_s: dict[str, float] = {}
        self._temporary: Path | None = None  # this process's own directory
        self._lock = threading.Lock()  # guards _temporary
        self.note = ""
        if directory is None:
            self._cannot_keep("this user has no cache directory")

    def find(self, key: str) -> CacheEntry | None:
        """Return the entry of this key and mark it as used; None if there is none or it cannot be read."""
        path = self.place(key)
        return self._read(path) if path is not None else None

    def place(self, key: str) -> Path | None:
        """Return the file of this key's entry, unread, and mark it as used; None if there is none."""
        for folder in self._folders():
            path = _place(folder, key)
            if os.path.lexists(path):
                self._mark_used(key, path)
                return path
        return None

    def keys(self) -> set[str]:
        return {path.name.removesuffix(SUFFIX) for path in self._listed("entries")}

    def drafts(self) -> list[Path]:
        """Return files to write a new entry to, in the order to try them.

        The files do not exist yet, but their directories do.
        """
        name = f"{DRAFT_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        drafts = []
        if self._directory is not None:
            try:
                _make(self._directory)
            except OSError as error:
                self._cannot_keep(f"{self._directory} cannot be written: {error.strerror or error}")
            else:
                self._checked = False  # its permissions may have changed
                kept = self._kept()
                drafts += [kept / "drafts" / name] if kept is not None else []
        try:
            drafts.append(Path(tempfile.gettempdir(), name))
        except OSError:  # no writable temporary directory either
            pass
        return drafts

    def commit(self, draft: Path, key: str) -> CacheEntry | None:
        """Turn a complete draft into the entry of this key.

        Return None if the draft is not complete or cannot be moved.
        """
        if self._read(draft) is None:
            self.discard(draft)
            return None
        folder = self._kept()
        if folder is None or draft.parent != folder / "drafts":
            if folder is not None:
                self._cannot_keep(f"{folder} cannot be written, or its disk is full")
            try:
                folder = self._temporary_folder(draft.parent)
            except OSError:
                self.discard(draft)
                return None
        place = _place(folder, key)
        try:
            os.replace(draft, place)
        except OSError:  # a directory is in the way
            self.drop(place)
            try:
                os.replace(draft, place)
            except OSError:
                self.discard(draft)
        self._mark_used(key, place)
        return self._read(place)

    def discard(self, draft: Path) -> None:
        """Delete a draft, if it is there."""
        _delete(draft)

    def drop(self, path: Path) -> None:
        """Delete a corrupt entry."""
        # Rename it first, so that no other process sees half an entry.
        trash = path.parent.parent / "drafts" / f"{DRAFT_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        try:
            os.rename(path, trash)
        except OSError:
            return
        _delete(trash)

    def trim(self) -> None:
        """Delete the least recently used entries until the rest fits. The last used entry always stays.

        Also delete drafts of processes that died.
        """
        for draft in self._listed("drafts"):
            try:
                if time.time() - draft.lstat().st_mtime > DRAFT_ABANDONED_S:
                    _delete(draft)
            except OSError:
                continue
        room_bytes = self._limit_bytes
        for number, (_, size_bytes, path) in enumerate(
            sorted(self._entries(), key=_kept_until, reverse=True)
        ):
            room_bytes -= size_bytes
            if number > 0 and room_bytes < 0:
                self.drop(path)

    def size_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes, _ in self._entries())

    def _kept(self) -> Path | None:
        """Return the cache directory; None if there is none that can be trusted."""
        if self._directory is None or self._checked:
            return self._directory
        self._checked = True
        for directory in (self._directory, self._directory / "entries", self._directory / "drafts"):
            try:
                reason = why_not_private(directory)
            except OSError:  # it does not exist, or nothing in it can be read
                continue
            if reason:
                self._directory = None
                self._cannot_keep(reason)
                return None
        return self._directory

    def _temporary_folder(self, parent: Path) -> Path:
        """Return the directory for entries that is deleted when this process ends. Raises OSError."""
        with self._lock:
            if self._temporary is None:
                folder = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=parent))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                _make(folder)
                self._temporary = folder
            return self._temporary

    def _folders(self) -> list[Path]:
        """Return the directories that may have entries."""
        return [folder for folder in (self._temporary, self._kept()) if folder is not None]

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield (time of last use, bytes, path) of each entry."""
        for path in self._listed("entries"):
            try:
                status = path.lstat()
            except OSError:  # another process is deleting it
                continue
            yield status.st_mtime, status.st_size, path

    def _listed(self, part: str) -> Iterator[Path]:
        """List the entries or drafts, and nothing that others have put there."""
        for folder in self._folders():
            try:
                names = os.listdir(folder / part)
            except OSError:
                continue
            yield from (folder / part / name for name in names if _OURS[part].fullmatch(name))

    def _read(self, path: Path) -> CacheEntry | None:
        try:
            return read_entry(path)
        except CorruptEntry:
            self.drop(path)
        except OSError:
            pass
        return None

    def _mark_used(self, key: str, path: Path) -> None:
        now_s = time.time()
        if now_s - self._used_s.get(key, 0.0) < USED_EVERY_S:
            return
        self._used_s[key] = now_s
        try:
            os.utime(path, follow_symlinks=False)
        except OSError:  # a read-only cache: its owner trims it
            pass

    def _cannot_keep(self, reason: str) -> None:
        if not self.note:
            self.note = (
                f"Results are deleted when TensorBoard exits: {reason}. Set GPUDIAG_CACHE_DIR to keep them."
            )
            logger.warning("gpudiag: %s", self.note)


def _place(folder: Path, key: str) -> Path:
    return folder / "entries" / f"{key}{SUFFIX}"


def _make(folder: Path) -> None:
    for directory in (folder, folder / "entries", folder / "drafts"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _kept_until(entry: tuple[float, int, Path]) -> tuple[float, Path]:
    """Return the sort key of an entry: the lowest one is deleted first."""
    used_s, size_bytes, path = entry
    return used_s + SMALL_STAYS_LONGER_S * (size_bytes <= SMALL_BYTES), path


def _delete(path: Path) -> None:
    """Delete whatever has this name, if it can be deleted."""
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError:  # a directory
        shutil.rmtree(path, ignore_errors=True)


def entry_key(*parts: str) -> str:
    """Return the key for these parts and this version of the analysis: 32 hexadecimal digits."""
    text = "\0".join((str(SCHEMA), __version__, _code_digest(), *parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


@cache
def _code_digest() -> str:
    """Return a digest of the installed code: a checkout changes while its version stays the same."""
    return digest_of_code(Path(tb_gpudiag.__file__).parent)


def digest_of_code(package: Path) -> str:
    """Return a digest of the source files that results depend on, and of their words and the code of fixes
    (Markdown): 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for layer in ANALYSIS_LAYERS:
        for path in sorted(each for each in (package / layer).rglob("*") if each.suffix in (".py", ".md")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
