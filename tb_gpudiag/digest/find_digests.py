"""Find the digest files below a directory."""

from __future__ import annotations

import os
from typing import Final

from tb_gpudiag.trace.files.opening import follows_links, is_below
from tb_gpudiag.trace.files.remote import listed
from tb_gpudiag.trace.files.source import is_remote, unreadable

SUFFIX: Final = ".gpudiag-digest"
# A directory of digests has one file per rank, or per rank and recording.
_MOST_FILES: Final = 1 << 20


def find_digests(root: str) -> list[str]:
    """Return the paths of the digest files below a directory, sorted; of a digest file, its own path.

    Links that lead outside are left out, as by find_traces.
    Raises Unreadable: a remote store cannot be listed.
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
        if len(found) > _MOST_FILES:
            break
    return found
