"""GD604: a link over which the same messages take longer than over the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.jobs.ranks.bandwidth import Link, SizeClass, slowness
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import NOT_MATCHED, capitalized, collective_text, culprits_text
from tb_gpudiag.rules.rule import Answer, Clear, Evidence, Finding, Fix, Saving
from tb_gpudiag.rules.shared.evidence import window_time
from tb_gpudiag.wording.format import figures, share
from tb_gpudiag.wording.quantity import bandwidth, duration, ratio, size

# Below this, a faster link is hardly noticed.
LEAST_SHARE = 0.02

# Transfers of equal size over equal links differ by some 10%. A link at half of its speed, or one that fell
# back to another transport, takes twice as long or more.
SLOWER = 1.5

# One long transfer is a collision with something else, not a slow link.
LEAST_COUNT = 3

# Large collectives over NVLink reach half of its peak and more. At a tenth, they do not use it.
PEAK_SHARE = 0.10
LEAST_BYTES = 8 << 20

# NVLink, GB/s in one direction, by compute capability: V100, A100, H100 and H200, B200.
_NVLINK_GB_PER_S = {"7.0": 150.0, "8.0": 300.0, "9.0": 450.0, "10.0": 900.0}
_WITH_NVLINK = ("SXM", "NVL", "GB200", "GB300", "B200", "B300", "GH200", "H200")


@dataclass(frozen=True)
class _Slow:
    link: Link
    like: SizeClass
    times: float
    more_ns: int


def check(facts: JobFacts) -> Answer:
    """Compare the transfers of collectives of one kind and size between groups of ranks."""
    if not len(facts.waits):
        return NOT_MATCHED
    window_ns = facts.job_ns
    slow = [found for like in facts.sizes for found in _slow_links(like)]
    cost_ns = _cost_ns(facts, slow)
    if cost_ns >= LEAST_SHARE * window_ns:
        return _finding(facts, slow, cost_ns, window_ns)
    if (below := _below_peak(facts)) is not None:
        return below
    compared = [like for like in facts.sizes if len(like.links) > 1]
    if not compared:
        return Clear("all collectives of one size are in one group, so no link can be compared with others")
    most = max((slowness(link, like) for like in compared for link in like.links), default=1.0)
    return Clear(
        f"the slowest link takes {figures(most)} times as long as links like it, which costs "
        f"{share(cost_ns, window_ns)} of the step window"
    )


def _slow_links(like: SizeClass) -> list[_Slow]:
    found = []
    for link in like.links:
        times = slowness(link, like)
        if times >= SLOWER and link.count >= LEAST_COUNT:
            found.append(_Slow(link, like, times, int(link.total_ns * (1 - 1 / times))))
    # Where most are slow, nothing says which of them is as it should be.
    return found if 2 * len(found) < len(like.links) or len(like.links) == 2 else []


def _cost_ns(facts: JobFacts, slow: list[_Slow]) -> int:
    """The longest extra time of any rank."""
    by_member = np.zeros(len(facts.set.members), np.int64)
    for found in slow:
        by_member[list(found.link.members)] += found.more_ns
    return int(by_member.max(initial=0))


def _finding(facts: JobFacts, slow: list[_Slow], cost_ns: int, window_ns: int) -> Finding:
    worst = max(slow, key=lambda found: found.more_ns)
    who = culprits_text(facts, np.array(_shared_members(facts, slow)))
    link, like = worst.link, worst.like
    return Finding(
        title=f"Transfers with {who} take {figures(worst.times)} times as long as others like them",
        summary=f"{capitalized(collective_text(link.kind))} operations of one size take longer if "
        f"{who} take part. That is the transfer after the last rank has arrived, so no rank is late: the "
        "link is slow.",
        fix=_FIX,
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "at most"),
        evidence=[
            window_time("Longer transfers", cost_ns, window_ns),
            Evidence("Transfer", duration(link.transfer_ns), (f"others take {duration(like.transfer_ns)}",)),
            Evidence("Compared with links like it", ratio(worst.times, "as long")),
            *_bandwidths(worst),
        ],
    )


def _bandwidths(worst: _Slow) -> list[Evidence]:
    link, like = worst.link, worst.like
    if link.bytes <= 0:
        return []
    here, usual = like.bus_gb_per_s(link.transfer_ns), like.bus_gb_per_s(link.transfer_ns / worst.times)
    return [
        Evidence("Message size", size(link.bytes)),
        Evidence("Bus bandwidth", bandwidth(here), (f"others reach {bandwidth(usual)}",)),
    ]


def _shared_members(facts: JobFacts, slow: list[_Slow]) -> list[int]:
    """The members that most of the slow transfers share, and that no fast link of the same kind has."""
    weight: Counter[int] = Counter()
    for found in slow:
        for member in found.link.members:
            weight[member] += found.more_ns
    most = max(weight.values())
    fast: Counter[int] = Counter()
    slow_channels = {found.link.channel for found in slow}
    for like in {id(found.like): found.like for found in slow}.values():
        for link in like.links:
            if link.channel not in slow_channels:
                fast.update(link.members)
    shared = [member for member, ns in weight.items() if 2 * ns > most]
    only_slow = [member for member in shared if not fast[member]]
    return sorted(only_slow or shared)


def _below_peak(facts: JobFacts) -> Finding | None:
    """A finding if large collectives on one host are far below what its links can do."""
    about = facts.set.members[0].about
    peak = _NVLINK_GB_PER_S.get(about.compute_capability, 0.0)
    if not peak or not any(name in about.device_name.upper() for name in _WITH_NVLINK):
        return None
    for like in facts.sizes:
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
                fix=_FIX,
                cost_ns=cost_ns,
                saving=Saving(0, cost_ns, "at most"),
                evidence=[
                    Evidence("Bus bandwidth", bandwidth(reached), (f"peak {bandwidth(peak)}",)),
                    Evidence("Message size", size(like.bytes)),
                    window_time("Transfer per rank", int(like.total_ns / links), facts.job_ns),
                ],
            )
    return None


_FIX = Fix(
    "Check the link of these ranks: its transport, its speed and errors. Measure it with nccl-tests.",
    """# Which links NCCL uses (NVLink, PCIe, InfiniBand, sockets):
#   NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH python train.py
# Speed and errors of NVLink, PCIe and InfiniBand on the host:
#   nvidia-smi nvlink --status; nvidia-smi topo -m; nvidia-smi -q -d PCIE; ibstat; perfquery -x
# The same collective without the job, on these hosts and on others:
#   all_reduce_perf -b 8M -e 256M -f 2 -g 8""",
    "https://github.com/NVIDIA/nccl-tests",
)
