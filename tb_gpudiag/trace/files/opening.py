"""Open files of a log directory, and nothing outside it.

A link may lead anywhere, and others may put one in place of a folder or a file at any time. So a file is
opened from the log directory downwards, and no part of its path may be a link then.
"""

from __future__ import annotations

import os
import stat
from typing import IO, Final

from tb_gpudiag.errors import Unreadable

FOLLOW_LINKS: Final = "GPUDIAG_FOLLOW_LINKS"
"""Environment variable: 1 to follow links that lead outside the log directory."""

# Search permission is enough to go through a folder, where the system can express that.
_FOLDER: Final = (
    getattr(os, "O_PATH", os.O_RDONLY)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# Opening a pipe must not wait for a writer.
_FILE: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def follows_links() -> bool:
    """Return whether the user wants links to be followed out of the log directory."""
    return os.environ.get(FOLLOW_LINKS, "").strip() == "1"


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it. Both are absolute and have no links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def open_local(path: str, folder: str = "") -> IO[bytes]:
    """Open a regular file for reading, without waiting.

    folder: the log directory, without links in its path. The file's real path has to be below it. Empty: the
    file may be anywhere.

    Raises:
        OSError: it is not a regular file, or cannot be opened.
        Unreadable: it is not below the folder.
    """
    if not folder:
        _check_regular(os.stat(path))  # before: opening a device may do something
        return open(path, "rb")
    descriptor = _open_below(folder, path)
    try:
        _check_regular(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def first_bytes(path: str, most_bytes: int, folder: str = "") -> bytes:
    """Return the start of a regular file, or all of a shorter one. For folder and errors, see open_local."""
    with open_local(path, folder) as file:
        # Python sets aside all that a read may return, which takes far longer than to read a small file.
        return file.read(min(most_bytes, os.fstat(file.fileno()).st_size + 1))


def _open_below(folder: str, path: str) -> int:
    real = os.path.realpath(path)
    if real == folder or not is_below(real, folder):
        raise outside(path)
    if os.open not in os.supports_dir_fd:
        return os.open(real, _FILE)
    *folders, name = os.path.relpath(real, folder).split(os.sep)
    above = os.open(folder, _FOLDER)
    try:
        for part in folders:
            below = os.open(part, _FOLDER, dir_fd=above)
            os.close(above)
            above = below
        _check_regular(os.stat(name, dir_fd=above, follow_symlinks=False))
        return os.open(name, _FILE, dir_fd=above)
    finally:
        os.close(above)


def outside(path: str) -> Unreadable:
    """Return the error of a path that leads outside the log directory."""
    return Unreadable(
        "it is a link that leads outside the log directory",
        where=path,
        remedy=f"set {FOLLOW_LINKS}=1 to follow it",
    )


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
        raise OSError("it is not a regular file")
