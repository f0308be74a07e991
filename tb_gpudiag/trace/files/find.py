"""Find the files to diagnose below a log directory: traces, memory snapshots and memory timelines."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from tb_gpudiag.errors import TraceError, Unreadable, without_url_secrets
from tb_gpudiag.trace.files.file_names import (
    ANY_DATABASE,
    ANY_JSON,
    ANY_PFTRACE,
    CERTAIN,
    FILES_REMEMBERED,
    MAGIC,
    Found,
    TraceFile,
    is_database,
    kind_of,
    trace_file,
)
from tb_gpudiag.trace.files.local_search import find_local
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.trace.files.remote import Version, listed, version
from tb_gpudiag.trace.files.source import is_remote, unreadable
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import FileKind

__all__ = ["Found", "Tell", "TraceFile", "find_traces", "may_be_database", "parse_logdir_spec", "sort_files"]

# On a remote store, reading the first bytes of each file takes too long: the name has to say what it is.
_TELLING_NAMES: Final = {
    "snapshot": lazy_re(r"snapshot|memory|(?<![a-z])oom(?![a-z])", re.IGNORECASE),
    "trace": lazy_re(r"(?<![a-z])trace(?![a-z])", re.IGNORECASE),
}
_TELLING_DATABASE: Final = lazy_re(r"nsys|nsight|report|profile|trace", re.IGNORECASE)
# TensorBoard's own pattern for a URL in --logdir_spec.
_SPEC_URL: Final = lazy_re(r"[a-zA-Z][0-9a-zA-Z.]*://")
_SPEC_DRIVE: Final = lazy_re(r"[a-zA-Z]:\\")


Tell = Callable[[Found], None]
"""Called with what was found so far, in any order."""


def find_traces(root: str, also: Sequence[str] = (), tell: Tell = lambda _: None) -> Found:
    """Find the files to diagnose below a directory. If `root` is a file, return that file, whatever its name.

    Traces are named `*.pt.trace.json`, memory timelines `*.raw.json.gz` or `*memory_timeline.json`, memory
    snapshots `*.pickle` or `*.pkl`; each may end in `.gz`. Pages of torch.cuda._memory_viz end in `.html`.
    Other programs also write pickles and pages, and traces may have any name ending in `.json`. On a local
    disk, files that start like a snapshot, such a page or a trace of PyTorch are returned; on a remote
    store, files with `snapshot`, `memory` or `oom`, or with the word `trace` in their name, and no pages.
    The same goes for `*.sqlite`, which `nsys export` writes. A report that was not exported is a problem.

    `root` is a local path or an fsspec URL. It may be a link itself. Links below it that lead elsewhere are
    followed to the directories in `also` only, and anywhere with GPUDIAG_FOLLOW_LINKS=1; one problem counts
    the links that were not followed. A folder is visited once, under its own path if that is below `root`.
    `tell` is called after each local folder. Raises nothing: whatever cannot be listed is in `problems`.
    """
    found = Found()
    if is_remote(root):
        _find_remote(root, found)
    else:
        others = [path for path in also if not is_remote(path)]
        find_local(os.path.expanduser(root), found, others, lambda: tell(found))
    sort_files(found.files)
    return found


def sort_files(files: list[TraceFile]) -> None:
    """Sort by run, worker and span."""
    files.sort(key=lambda f: (_natural(f.run), _natural(f.worker), int(f.span or 0), f.path))


def parse_logdir_spec(spec: str) -> list[tuple[str, str]]:
    """Parse TensorBoard's `--logdir_spec` into (name, path) pairs; the name is empty if the spec gives none.

    Commas separate `name:path` entries. `/a:b` is a path with a colon, `C:\\logs` a path with a drive and
    `gs://bucket` a URL. If a path comes twice, the last entry wins. Empty entries are skipped.
    """
    named: dict[str, str] = {}
    for entry in spec.split(","):
        if not entry:
            continue
        name, path = "", entry
        drive = os.path.splitdrive(entry)[0] or _SPEC_DRIVE.match(entry)
        if ":" in entry and entry[0] != "/" and not drive and not _SPEC_URL.match(entry):
            name, _, path = entry.partition(":")
        if not _SPEC_URL.match(path) and not _SPEC_DRIVE.match(path):
            path = os.path.realpath(os.path.expanduser(path))
        named[path] = name
    return [(name, path) for path, name in named.items()]


def _find_remote(root: str, found: Found) -> None:
    try:
        files = listed(root)
    except FileNotFoundError:
        remedy = "check the bucket and the path; a folder is there once it has a file"
        found.problems.append(Unreadable("there is nothing at this URL", where=root, remedy=remedy))
        return
    except Exception as error:  # fsspec back ends raise anything
        found.problems.append(unreadable(error, root))
        found.lost = True
        return
    for file in files:
        folder, _, name = file.inside.rpartition("/")
        named = not file.inside
        name = name or without_url_secrets(file.url).rpartition("/")[2]
        kind = kind_of(name)
        if named or kind in CERTAIN or _tells(kind, name):
            found.files.append(_remote_file(file.url, folder or ".", name, version(file.info)))


@lru_cache(FILES_REMEMBERED)
def _remote_file(url: str, run: str, name: str, content: Version) -> TraceFile:
    """Describe this version of a file. The same version is the same object: listings are repeated."""
    return trace_file(url, run, name, content)


def _tells(kind: FileKind | None, name: str) -> bool:
    """Return whether the name of a file on a remote store says that it is a snapshot or a trace."""
    if ANY_DATABASE.fullmatch(name):
        return _TELLING_DATABASE.search(name) is not None
    if ANY_PFTRACE.fullmatch(name):
        return True
    if kind is None and not ANY_JSON.fullmatch(name):
        return False
    return not name.endswith(".html") and _TELLING_NAMES[kind or "trace"].search(name) is not None


def may_be_database(file: TraceFile) -> bool:
    """Return whether SQLite will read a file, by its name or, of a local one, by its first bytes."""
    if ANY_DATABASE.fullmatch(file.path):
        return True
    with contextlib.suppress(OSError, TraceError):
        return is_database(first_bytes(file.path, len(MAGIC), file.folder))
    return False


@lru_cache(FILES_REMEMBERED)
def _natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key that compares the numbers in names as numbers: rank2 comes before rank10."""
    parts = re.split(r"([0-9]+)", text)  # every second part is a number
    return [(0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts)]
