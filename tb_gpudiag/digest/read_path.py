"""Digests at a path, for callers that have neither processes nor a progress bar."""

from __future__ import annotations

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import find_digests, read_digest
from tb_gpudiag.digest.digested import digest_file
from tb_gpudiag.digest.file import SUFFIX
from tb_gpudiag.errors import LinksNotFollowed
from tb_gpudiag.trace.files.find import find_traces


def digests_at(path: str) -> list[Digest]:
    """Return the digests at a path: of its digest files, and of its traces, which are read one by one.

    Raises:
        TraceError: a file cannot be read.
    """
    digests = [read_digest(name) for name in find_digests(path)]
    if path.endswith(SUFFIX):
        return digests
    found = find_traces(path)
    problems = [problem for problem in found.problems if not isinstance(problem, LinksNotFollowed)]
    if problems and not digests:
        raise problems[0]
    known = {digest.about.id for digest in digests}
    return digests + [digest_file(file)[1] for file in found.files if file.identity not in known]
