"""Files of a cache. Others may be able to write to its directory, or its disk may be bad.

A name in it may lead to a pipe, a device, a directory or somebody else's file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from tb_gpudiag.errors import CorruptEntry

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

# Windows has none of these, and no owner and permissions of this kind: there, a user's profile is private.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_HAS_OWNERS = hasattr(os, "geteuid")


def open_file(path: Path, *, of_others: bool = False) -> IO[bytes]:
    """Open a regular file of this user for reading. Never waits for a writer.

    of_others: it may belong to another user, and others may write to it.

    Raises:
        CorruptEntry: there is something else.
        OSError: it cannot be opened, or does not exist.
    """
    flags = os.O_RDONLY | _NO_WAITING | _NO_LINK | _BINARY
    if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device may do something
        raise CorruptEntry.at(path)
    file = os.fdopen(os.open(path, flags), "rb")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or not (of_others or _is_own(status)):
        file.close()
        raise CorruptEntry.at(path)
    return file


def create_private(path: Path) -> int:
    """Create a file that only this user can read and write, and return its descriptor. Raises OSError: it
    exists or cannot be created."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY, 0o600)


def why_not_private(directory: Path) -> str:
    """Return why others may have written to this directory; empty if they cannot have. Raises OSError: the
    directory does not exist or cannot be examined."""
    status = os.stat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if not _HAS_OWNERS:
        return ""
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"other users can write to {directory} (run: chmod go-w {directory})"
    return ""


def _is_own(status: os.stat_result) -> bool:
    if not _HAS_OWNERS:
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS
