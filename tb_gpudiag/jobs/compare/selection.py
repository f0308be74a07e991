"""Which digests are one side of a comparison: one trace, or the ranks of one job."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.jobs.ranks.members import find_sets


def one_side(digests: Sequence[Digest], where: str) -> list[Digest]:
    """Return the digests if they are one recording, or those of the ranks of one job.

    Raises:
        NothingToRead: there are none.
        UsageError: they are several recordings.
    """
    if not digests:
        raise NothingToRead("no trace and no digest was found", where=where)
    if len(digests) == 1:
        return list(digests)
    sets = find_sets(digests).sets
    if len(sets) == 1 and len(sets[0].members) == len(digests):
        return list(sets[0].members)
    raise UsageError(
        f"contains {len(digests):,} recordings that are not the ranks of one job",
        where=where,
        remedy="name one trace, or a directory with one trace per rank; `gpudiag history` compares several "
        "recordings of a run",
    )
