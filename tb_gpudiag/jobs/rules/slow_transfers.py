"""Which links are slow: shared by the rule on it and by the one on overlap, which leaves them out."""

from __future__ import annotations

from tb_gpudiag.jobs.ranks.bandwidth import SizeClass, Slower, among_links, among_steps
from tb_gpudiag.jobs.ranks.channels import SEND
from tb_gpudiag.jobs.ranks.collective_matching import SAME_BYTES
from tb_gpudiag.jobs.ranks.job_facts import JobFacts

# Transfers of equal size over equal links differ by some 10%. A link at half of its speed, or one that fell
# back to another transport, takes twice as long or more.
SLOWER = 1.5

# One long transfer is a collision with something else, not a slow link.
LEAST_COUNT = 3


def find_slow_links(facts: JobFacts) -> list[Slower]:
    """Find the links that are slower than others like them, or in some steps slower than in the others."""
    # Ranks of an all-to-all send different amounts, and each trace has only its own rank's.
    compared = [like.whole for like in facts.sizes if like.kind in SAME_BYTES or like.kind == SEND]
    return [found for like in compared for found in _slow_links(like)]


def _slow_links(like: SizeClass) -> list[Slower]:
    found = []
    for link in like.links:
        one = among_links(link, like)
        if one.times >= SLOWER and link.count >= LEAST_COUNT:
            found.append(one)
    # Where most are slow, nothing says which of them is as it should be.
    if found and (2 * len(found) < len(like.links) or len(like.links) == 2):
        return found
    by_step = [among_steps(link, like, SLOWER) for link in like.links if link.count >= 2 * LEAST_COUNT]
    return [one for one in by_step if one.times >= SLOWER and len(one.steps) * LEAST_COUNT <= one.link.count]
