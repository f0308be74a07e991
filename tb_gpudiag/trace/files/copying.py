"""Write a copy of a file: as a whole or not at all, and never over the file that it is made from."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from tb_gpudiag.errors import Unreadable, UsageError
from tb_gpudiag.trace.files.source import GZIP, is_remote

Write = Callable[[bytes], object]
"""Takes the next bytes of a file."""


def refuse_same_file(path: str, target: Path) -> None:
    """Raise UsageError if the target is remote, or the file itself."""
    if is_remote(str(target)):
        raise UsageError("the output must be a local file", where=str(target), remedy="copy it afterwards")
    with contextlib.suppress(OSError):
        if not is_remote(path) and os.path.samefile(path, target):
            raise UsageError(
                "the output is the trace itself, which is never overwritten",
                where=str(target),
                remedy="write to another file, check it, and then replace the trace",
            )


@contextlib.contextmanager
def packing(write: Write, level: int = zlib.Z_DEFAULT_COMPRESSION) -> Iterator[Write]:
    """Compress what is written with gzip, and pass it to `write`."""
    packer = zlib.compressobj(level, wbits=GZIP)
    yield lambda piece: write(packer.compress(piece))
    write(packer.flush())


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces the target if nothing fails. A pipe or device is written directly."""
    temporary: Path | None = None
    try:
        target = Path(os.path.realpath(target))  # replace the target of a link, not the link
        mode = _mode(target)
        if stat.S_ISDIR(mode):
            raise UsageError("it is a directory", where=str(target), remedy="name a file")
        if not stat.S_ISREG(mode):
            with open(target, "wb") as file:
                yield file
            return
        # A process elsewhere may write to the same folder, and have the same number.
        unfinished = target.with_name(f".gpudiag.{os.urandom(8).hex()}.tmp")
        with open(unfinished, "xb") as file:
            temporary = unfinished
            yield file
        temporary.replace(target)
    except OSError as error:
        raise Unreadable(f"cannot be written: {error.strerror or error}", where=str(target)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _mode(target: Path) -> int:
    """Return the kind of the file; that of a regular one if there is none. Raises OSError."""
    try:
        return os.stat(target).st_mode
    except FileNotFoundError:
        return stat.S_IFREG
