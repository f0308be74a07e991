"""Find digest files below a path, and read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.file import MOST_BYTES, SUFFIX, from_bytes
from tb_gpudiag.errors import TooLarge, Unreadable
from tb_gpudiag.trace.files.opening import follows_links, is_below
from tb_gpudiag.trace.files.remote import RemoteFile, listed
from tb_gpudiag.trace.files.source import Readable, is_remote, unreadable

# A directory of digests has one file per rank, or per rank and recording.
MOST_FILES: Final = 1 << 20


def find_digests(root: str) -> list[str]:
    """Return the paths of the digest files below a directory, sorted; if `root` is one, itself. Links that
    lead outside are left out, as by find_traces.

    Raises:
        Unreadable: a remote store cannot be listed.
    """
    if root.endswith(SUFFIX):
        return [root]
    if is_remote(root):
        try:
            files = listed(root)
        except Exception as error:  # back ends raise anything
            raise unreadable(error, root) from error
        return sorted(file.url for file in files if file.url.endswith(SUFFIX))
    return sorted(_local_digests(root))


def _local_digests(root: str) -> list[str]:
    found: list[str] = []
    inside = "" if follows_links() else os.path.realpath(root)
    for folder, _, names in os.walk(root):
        paths = [os.path.join(folder, name) for name in names if name.endswith(SUFFIX)]
        found += [path for path in paths if not inside or is_below(os.path.realpath(path), inside)]
        if len(found) > MOST_FILES:
            break
    return found


def read_digest(path: str) -> Digest:
    """Read a digest file: a local path or an fsspec URL.

    Raises:
        Unreadable: it cannot be read.
        NotATrace, TooLarge: it is not a digest.
    """
    try:
        if not is_remote(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("it is not a regular file", where=path, remedy="name a digest file")
        with RemoteFile(path) if is_remote(path) else open(path, "rb") as file:
            content = b"".join(_pieces(file))
    except Unreadable:
        raise
    except Exception as error:
        raise unreadable(error, path) from error
    if len(content) > MOST_BYTES:
        raise TooLarge("this file is too large to be a digest", where=path)
    return from_bytes(content, path)


def _pieces(file: Readable) -> Iterator[bytes]:
    """Yield the content, up to one byte more than a digest has."""
    rest = MOST_BYTES + 1
    while rest and (piece := file.read(rest)):
        rest -= len(piece)
        yield piece
