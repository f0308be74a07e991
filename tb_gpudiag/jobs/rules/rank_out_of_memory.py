"""GD611: ranks that ran out of memory, by the snapshots that all of them left: what they asked for, and
whether the others held the same."""

from __future__ import annotations

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.rank_memory import AgainstOthers
from tb_gpudiag.jobs.rules.job_words import capitalized, ranks_evidence
from tb_gpudiag.jobs.rules.rank_findings import NO_FINDING, fix_of, places_of
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer, place_at
from tb_gpudiag.rules.rule import family_of, page_fixes
from tb_gpudiag.wording.format import more_bytes, ranks_text, size_bytes
from tb_gpudiag.wording.good_recording import RECORD_HISTORY
from tb_gpudiag.wording.quantity import size
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS

FIXES = page_fixes(__name__)


def check(facts: JobFacts) -> RuleAnswer:
    """Compare the ranks whose allocations failed with the others."""
    memory, failed = facts.memory, facts.memory.failed
    if not len(failed):
        return _without_failure(facts)
    first = int(failed[0])
    requested, allocated, most = (
        int(bytes[first]) for bytes in (memory.failed_bytes, memory.allocated, memory.capacity)
    )
    found = memory.against_others(first)
    of_memory = (one for one in facts.set.members[first].findings if family_of(one.rule) == "memory")
    holds_more = found.holds == "more"
    own = NO_FINDING if holds_more else next(of_memory, NO_FINDING)
    evidence = {
        "Requested": requested,
        "Allocated at its peak": allocated,
        "Median of the others": found.others_bytes,
        "It can have": most,
    }
    return Finding(
        title=f"{capitalized(ranks_text(facts.ranks(failed)))} ran out of memory: an allocation of "
        f"{size_bytes(requested)} failed{f' {memory.failed_at[first]}'.rstrip()}",
        summary=_compared(f"rank {facts.set.ranks[first]}", allocated, found),
        fix=fix_of(own, FIXES["even"]),
        leads=True,
        evidence=[
            ranks_evidence(facts, failed),
            *(Evidence(label, size(bytes)) for label, bytes in evidence.items() if bytes),
        ],
        places=[place_at(at) for at, _ in found.places] if holds_more else places_of(own),
    )


def _without_failure(facts: JobFacts) -> RuleAnswer:
    unknown = facts.ranks(facts.memory.without_history)
    if unknown:
        return CannotTell(f"the snapshots of {ranks_text(unknown)} have no history", f"{RECORD_HISTORY}.")
    return Clear(f"no allocation failed on {ranks_text(facts.set.ranks)}")


def _compared(rank: str, allocated: int, found: AgainstOthers) -> str:
    """Say whether the others held the same."""
    kinds = [f"{more_bytes(bytes)} of {MEMORY_KINDS[kind].noun}" for kind, bytes in found.kinds]
    where = [f" The largest part is {more_bytes(bytes)} {place.where}." for place, bytes in found.places[:1]]
    differs = (
        f"{capitalized(rank)} had {size_bytes(allocated)} allocated at its peak, "
        f"{more_bytes(found.more_bytes)} than the median of the others"
        f"{': ' * bool(kinds)}{', '.join(kinds)}.{''.join(where)}"
    )
    return {
        "none": "Allocations failed on every rank, so it is not one of them that holds too much.",
        "same": "The other ranks held as much at their peaks, "
        f"{size_bytes(found.others_bytes)} by the median: any of them could have failed.",
    }.get(found.holds, differs)
