"""Files that only this user can have written.

A cache may be in a directory that others can write to, on a network file system or on a bad disk. A name in
it may lead to a pipe, a device, a directory or somebody else's file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(Exception):
    """It is not a regular file of this user, or others can write to it."""


def open_private(path: Path) -> int:
    """Open a regular file of this user for reading, and return its descriptor. Never waits for a writer.

    Raises:
        NotPrivate: there is something else, or others can write to it.
        OSError: it cannot be opened, or does not exist.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device may do something
        raise NotPrivate(path)
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_own(status):
            raise NotPrivate(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_private(path: Path) -> int:
    """Create a file that only this user can read and write, and return its descriptor.

    Raises:
        OSError: it exists or cannot be created.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def why_not_private(directory: Path) -> str:
    """Return why others may have written to this directory, which exists; empty if they cannot have.

    Raises:
        OSError: it cannot be looked at.
    """
    status = os.stat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"other users can write to {directory} (run: chmod go-w {directory})"
    return ""


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS
