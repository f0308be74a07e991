"""The store of results of traces: a directory on shared storage that a team names, or else the user's own.

Commands and the tab find in it what the other has computed: whole results in a team's store, and reports and
digests in a user's own, because the tab has timelines in its cache. It is bounded in size.

Whoever sets GPUDIAG_SHARED_CACHE_DIR trusts those who can write there. Files in the directory are data with
checksums. A file is read completely and checked before any of it is used: if it is damaged, or changes during
the reading, it counts as absent. What is used is copied to the private cache.

Files get the permissions of the directory: make the directory writable for a group to share it.

    <directory>/<key>.gpudiag   see cache_entry.py
    <directory>/….draft         being written
    <directory>/….claim         being analyzed: see claims.py
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.service.caches.cache_entry import Unpacked, create_private, open_file, unpack, why_not_private
from tb_gpudiag.service.settings import MIB, Settings
from tb_gpudiag.vocabulary.patterns import lazy_re

SUFFIX: Final = ".gpudiag"
_ENTRY: Final = lazy_re(rf"[0-9a-f]{{32}}{re.escape(SUFFIX)}")
_DRAFT: Final = lazy_re(r"\.[0-9a-f]{32}(-[0-9a-f]{32}\.draft|\.claim)")

# Files are never writable for everyone. Whether the group may write depends on the directory.
_MOST_PERMISSIONS: Final = 0o664
# Writing an entry never takes this long. An older draft was left behind by a process that died.
_DRAFT_ABANDONED_S: Final = 24 * 3600.0
# The time of last use decides what is deleted first.
_USED_EVERY_S: Final = 3600.0
# A thousand reports, of 50 to 250 KB each, or more digests.
_KEPT_BYTES: Final = 256 * MIB

logger = logging.getLogger("tensorboard")


class SharedCache:
    """Entries in `directory`. Any method may take long, because the storage may be slow.

    `note` is empty, or one line that says why the directory is not used.
    """

    def __init__(self, directory: Path, limit_bytes: int, *, is_own: bool = False) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self.is_own = is_own
        self.note = ""

    @classmethod
    def of(cls, settings: Settings) -> SharedCache | None:
        """Return the team's store; None if results are not shared."""
        if settings.shared_directory is None:
            return None
        return cls(settings.shared_directory, settings.shared_bytes)

    @classmethod
    def of_user(cls, settings: Settings) -> SharedCache | None:
        """Return the team's store, else this user's own; None if there is neither."""
        shared = cls.of(settings)
        if shared is not None or settings.cache_directory is None:
            return shared
        directory = settings.cache_directory / "digests"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            trusted = not why_not_private(settings.cache_directory) and not why_not_private(directory)
        except OSError:  # no home directory, or nothing can be written there
            return None
        return cls(directory, _KEPT_BYTES, is_own=True) if trusted else None

    def keys(self) -> set[str]:
        try:
            names = os.listdir(self._made())
        except OSError as error:
            self._cannot_use(error)
            return set()
        return {name.removesuffix(SUFFIX) for name in names if _ENTRY.fullmatch(name)}

    def find(self, key: str, fingerprint: str, *, summary_only: bool = False) -> tuple[Unpacked, str] | None:
        """Return the entry of the trace with this fingerprint and who wrote it; None if there is none."""
        path = self._path(key)
        try:
            with open_file(path, of_others=True) as file:
                status = os.fstat(file.fileno())
                found = unpack(file, path, summary_only=summary_only)
        except (OSError, CorruptEntry):
            return None
        if not found.is_of(key, fingerprint):
            return None
        if time.time() - status.st_mtime > _USED_EVERY_S:
            with contextlib.suppress(OSError):  # another user's, and not writable
                os.utime(path, follow_symlinks=False)
        return found, owner(status.st_uid)

    def put(self, key: str, write: Callable[[IO[bytes]], None]) -> bool:
        """Add an entry that `write` writes. Return False if it is too large or cannot be written.

        Others see the whole entry or none. Its claim is deleted, as nobody has to wait for it any more.
        """
        draft: Path | None = None
        try:
            directory = self._made()
            draft = directory / f".{key}-{uuid.uuid4().hex}.draft"
            with os.fdopen(_created(draft, directory), "wb") as file:
                write(file)
                size_bytes = file.tell()
            if size_bytes > self._limit_bytes:
                draft.unlink()
                self.unclaim(key)
                return False
            self.trim(size_bytes, key)
            os.replace(draft, self._path(key))
            self.unclaim(key)
        except OSError as error:
            self._cannot_use(error)
            if draft is not None:
                with contextlib.suppress(OSError):
                    draft.unlink()
            self.unclaim(key)
            return False
        self.note = ""
        return True

    def trim(self, new_bytes: int = 0, replaced: str = "") -> None:
        """Delete the least recently used entries until there is room for `new_bytes`.

        Every writer makes room before its entry appears. Writers that do so at the same time delete the same
        entries, so no process has to wait for another.
        """
        entries = []
        now_s = time.time()
        with os.scandir(self._directory) as listed:
            for entry in listed:
                with contextlib.suppress(OSError):  # another process is deleting it
                    status = entry.stat(follow_symlinks=False)
                    if _ENTRY.fullmatch(entry.name):
                        entries.append((status.st_mtime_ns, entry.name, status.st_size))
                    elif _DRAFT.fullmatch(entry.name) and now_s - status.st_mtime > _DRAFT_ABANDONED_S:
                        os.unlink(entry.path)
        kept_bytes = new_bytes
        for _, name, size_bytes in sorted(entries, reverse=True):
            if name.removesuffix(SUFFIX) == replaced:
                continue
            kept_bytes += size_bytes
            if kept_bytes > self._limit_bytes:
                with contextlib.suppress(
                    OSError
                ):  # gone, or another user's in a directory with the sticky bit
                    os.unlink(self._directory / name)

    def claim(self, key: str) -> int:
        """Create the claim of this key and return its descriptor.

        Raises:
            FileExistsError: there is one.
            OSError: it cannot be created.
        """
        return _created(self._claim_path(key), self._made())

    def claimed(self, key: str) -> tuple[int, int]:
        """Return a value that changes when the claim of this key is touched or replaced. Raises OSError."""
        try:
            with open_file(self._claim_path(key), of_others=True) as file:  # NFS asks the server then
                status = os.fstat(file.fileno())
        except CorruptEntry as error:
            raise OSError("not a file") from error
        return status.st_ino, status.st_mtime_ns

    def unclaim(self, key: str, mine: int = -1) -> None:
        """Delete the claim of this key.

        mine: the descriptor of this process's claim, which is closed. Then, another process's claim stays.
        """
        path = self._claim_path(key)
        with contextlib.suppress(OSError):
            if mine < 0 or os.path.samestat(os.fstat(mine), os.lstat(path)):
                os.unlink(path)
        if mine >= 0:
            with contextlib.suppress(OSError):
                os.close(mine)

    def _claim_path(self, key: str) -> Path:
        return self._directory / f".{key}.claim"

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{SUFFIX}"

    def _made(self) -> Path:
        """Return the directory. Create it, but not its parents: if they are missing, nothing is mounted."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory)
        return self._directory

    def _cannot_use(self, error: OSError) -> None:
        if not self.note:
            self.note = (
                f"Results are not shared: {self._directory} cannot be used "
                f"({error.strerror or type(error).__name__})."
            )
            logger.warning("gpudiag: %s", self.note)


def owner(user: int) -> str:
    """Return the name of a user id."""
    try:
        import pwd

        return pwd.getpwuid(user).pw_name
    except (ImportError, KeyError, OSError):
        return f"user {user}"


def _created(path: Path, directory: Path) -> int:
    """Create a file with the permissions and the group of its directory, and return its descriptor."""
    descriptor = create_private(path)
    with contextlib.suppress(OSError):  # some network storage has no permissions
        status = os.stat(directory)
        if os.fstat(descriptor).st_gid != status.st_gid:
            os.fchown(descriptor, -1, status.st_gid)
        os.fchmod(descriptor, status.st_mode & _MOST_PERMISSIONS)
    return descriptor
