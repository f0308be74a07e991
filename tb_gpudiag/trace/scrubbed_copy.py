"""Write a trace without the credentials in it; every other byte stays as it is."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from tb_gpudiag.errors import NotATrace, Unreadable, UsageError
from tb_gpudiag.trace.credentials import CredentialFilter
from tb_gpudiag.trace.events import Credential
from tb_gpudiag.trace.limits import DEFAULT_LIMITS, Limits
from tb_gpudiag.trace.snapshot_pickle import is_pickle
from tb_gpudiag.trace.source import GZIP, Source, is_remote

_BEFORE_JSON: Final = b"\xef\xbb\xbf \t\r\n\0"


def scrub(
    path: str, output: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[Mapping[Credential, int], list[str]]:
    """Copy a trace, plain or gzip, without its credentials.

    output: a local file. If its name ends in .gz, it is compressed. It is written as a whole or not at all.

    Return how often each credential was found, and notes about the file.

    Raises UsageError if the output is the trace itself, and TraceError if one of the two cannot be read or
    written.
    """
    target = Path(output)
    _refuse_same_file(path, target)
    found = CredentialFilter()
    with Source(path, limits) as source, _whole_file(target) as file:
        pieces = _cleaned(iter(source), found, path)
        for piece in _packed(pieces) if target.name.endswith(".gz") else pieces:
            file.write(piece)
    return dict(found.found), source.notes


def _refuse_same_file(path: str, target: Path) -> None:
    if is_remote(str(target)):
        raise UsageError("the output must be a local file", where=str(target), remedy="copy it afterwards")
    with contextlib.suppress(OSError):
        if not is_remote(path) and os.path.samefile(path, target):
            raise UsageError(
                "the output is the trace itself, which is never overwritten",
                where=str(target),
                remedy="write to another file, check it, and then replace the trace",
            )


def _cleaned(blocks: Iterator[bytes], found: CredentialFilter, path: str) -> Iterator[bytes]:
    first = next(blocks, b"")
    if is_pickle(first) or first.lstrip(_BEFORE_JSON)[:1] not in (b"{", b"["):
        raise NotATrace(
            "it is not a trace", where=path, remedy="name a .pt.trace.json or .pt.trace.json.gz file"
        )
    yield found.feed(first)
    for block in blocks:
        yield found.feed(block)
    yield found.end()


def _packed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=GZIP)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


@contextlib.contextmanager
def _whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces the target if nothing fails. A pipe or device is written directly."""
    temporary: Path | None = None
    try:
        target = target.resolve()  # replace the target of a link, not the link
        if target.exists() and not target.is_file():
            if target.is_dir():
                raise UsageError("it is a directory", where=str(target), remedy="name a file")
            with open(target, "wb") as file:
                yield file
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with open(temporary, "xb") as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        raise Unreadable(f"cannot be written: {error.strerror or error}", where=str(target)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
