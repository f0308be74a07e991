"""GD604: a link over which the same messages take longer than over the others."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.jobs.ranks.bandwidth import LEAST_COUNT, Slower, among_links, find_slow_links
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import capitalized, collective_text, culprits_text, ranks_evidence
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, RuleAnswer, Saving
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count, figures, share
from tb_gpudiag.wording.quantity import bandwidth, duration, ratio, size

FIXES = page_fixes(__name__)

# Below this, a faster link is hardly noticed.
LEAST_SHARE = levels.MEASURABLE

# Large collectives over NVLink reach half of its peak and more. At a tenth, they do not use it.
PEAK_SHARE = levels.SIZEABLE
LEAST_BYTES = 8 << 20

# NVLink, GB/s in one direction, by compute capability: V100, A100, H100 and H200, B200.
_NVLINK_GB_PER_S = {"7.0": 150.0, "8.0": 300.0, "9.0": 450.0, "10.0": 900.0}
_WITH_NVLINK = ("SXM", "NVL", "GB200", "GB300", "B200", "B300", "GH200", "H200")


def check(facts: JobFacts) -> RuleAnswer:
    """Compare the transfers of collectives of one kind and size between groups of ranks."""
    window_ns = facts.job_ns
    if not facts.on_gpu and len(np.unique(facts.clocks.host)) < 2:
        return Clear("all ranks are on the CPU of one host, and send their messages through its memory")
    slow, more_ns = find_slow_links(facts.sizes), np.zeros(len(facts.set.members), np.int64)
    for found in slow:
        more_ns[list(found.link.members)] += found.more_ns
    cost_ns = int(more_ns.max(initial=0))  # of the rank that loses most
    if cost_ns >= LEAST_SHARE * window_ns:
        return _finding(facts, slow, cost_ns, window_ns)
    if (below := _below_peak(facts)) is not None:
        return below
    compared = [whole for like in facts.sizes if len((whole := like.whole).links) > 1]
    if not compared:
        return Clear("transfers of one size take equally long in all steps, and there is one group only")
    most = max((among_links(link, like).times for like in compared for link in like.links), default=1.0)
    return Clear(
        f"the slowest link takes {figures(most)} times as long as links like it, and slow ones cost "
        f"{share(cost_ns, window_ns)} of the step window"
    )


def _finding(facts: JobFacts, slow: list[Slower], cost_ns: int, window_ns: int) -> Finding:
    worst = max(slow, key=lambda found: found.more_ns)
    members = np.array(_shared_members(facts, slow))
    who = culprits_text(facts, members)
    like = worst.like
    kind = capitalized(collective_text(like.kind))
    here, usual = (bandwidth(like.bus_gb_per_s(ns)) for ns in (worst.slow_ns, worst.usual_ns))
    rate = Evidence("Bus bandwidth", here, (f"usually {usual}",))
    if worst.steps:
        steps = len({step for one in slow for step in one.steps})
        title = f"Transfers with {who} take {figures(worst.times)} times as long in {count(steps, 'step')}"
        how = f"{kind} operations of one size take longer in some steps than in the others."
    else:
        title = f"Transfers with {who} take {figures(worst.times)} times as long as others like them"
        how = f"{kind} operations of one size take longer if {who} take part."
    return Finding(
        title=title,
        summary=f"{how} That is the transfer after the last rank has arrived, so no rank is late: the "
        "link is slow.",
        fix=FIXES["measure"],
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "at most"),
        evidence=[
            ranks_evidence(facts, members),
            Evidence.of_window("Longer transfers", cost_ns, window_ns),
            Evidence("Transfer", duration(worst.slow_ns), (f"usually {duration(worst.usual_ns)}",)),
            Evidence("Slower", ratio(worst.times, "as long")),
            *Evidence.some("Message size", size(max(0, like.bytes))),
            *([rate] if like.bytes > 0 else []),
        ],
    )


def _shared_members(facts: JobFacts, slow: list[Slower]) -> list[int]:
    """The members that are in most of the slow groups, and in no fast one of the same kind."""
    groups: Counter[int] = Counter()
    for members in {found.link.channel: found.link.members for found in slow}.values():
        groups.update(members)
    shared = [member for member, number in groups.items() if number == max(groups.values())]
    fast = {
        member
        for like in {id(found.like): found.like for found in slow}.values()
        for link in like.links
        if all(found.link is not link for found in slow)
        for member in link.members
    }
    return sorted([member for member in shared if member not in fast] or shared)


def _below_peak(facts: JobFacts) -> Finding | None:
    """A finding if large collectives on one host are far below what its links can do."""
    about = facts.set.members[0].about
    peak = _NVLINK_GB_PER_S.get(about.compute_capability, 0.0)
    if not peak or not any(name in about.device_name.upper() for name in _WITH_NVLINK):
        return None
    for like in (one.whole for one in facts.sizes if one.whole.links):
        reached = like.bus_gb_per_s(like.transfer_ns)
        large = like.bytes >= LEAST_BYTES and like.count >= LEAST_COUNT
        if like.hosts > 1 or not large or not 0 < reached < PEAK_SHARE * peak:
            continue
        links = max(1, len(like.links))
        cost_ns = int(like.total_ns / links * (1 - reached / (PEAK_SHARE * peak)))
        if cost_ns >= LEAST_SHARE * facts.job_ns:
            return Finding(
                title=f"Collectives between GPUs of one host reach {figures(reached)} GB/s, "
                f"{share(reached, peak)} of NVLink's peak",
                summary=f"{capitalized(collective_text(like.kind))} operations on one host are much slower "
                "than NVLink is. They probably use PCIe, shared memory or sockets.",
                fix=FIXES["measure"],
                cost_ns=cost_ns,
                saving=Saving(0, cost_ns, "at most"),
                evidence=[
                    Evidence("Bus bandwidth", bandwidth(reached), (f"peak {bandwidth(peak)}",)),
                    Evidence("Message size", size(like.bytes)),
                    Evidence.of_window("Transfer per rank", int(like.total_ns / links), facts.job_ns),
                ],
            )
    return None
