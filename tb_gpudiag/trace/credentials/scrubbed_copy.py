"""Write a trace without the credentials in it; every other byte stays as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.copying import Write, packing, refuse_same_file, whole_file
from tb_gpudiag.trace.files.file_names import is_pickle, refuse_database
from tb_gpudiag.trace.files.source import DEFAULT_LIMITS, Limits, Source
from tb_gpudiag.vocabulary.recorded import Credential

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
    refuse_same_file(path, target)
    found = CredentialFilter()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(Source(path, limits))
        write: Write = stack.enter_context(whole_file(target)).write
        if target.name.endswith(".gz"):
            write = stack.enter_context(packing(write))
        for piece in _cleaned(iter(source), found, path):
            write(piece)
    return dict(found.found), source.notes


def _cleaned(blocks: Iterator[bytes], found: CredentialFilter, path: str) -> Iterator[bytes]:
    first = next(blocks, b"")
    refuse_database(first, path)
    if is_pickle(first) or first.lstrip(_BEFORE_JSON)[:1] not in (b"{", b"["):
        raise NotATrace(
            "it is not a trace", where=path, remedy="name a .pt.trace.json or .pt.trace.json.gz file"
        )
    yield found.feed(first)
    for block in blocks:
        yield found.feed(block)
    yield found.end()
