"""The verdict on a job: one limiter, and one sentence that a newcomer understands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.operations import IN_COLLECTIVE
from tb_gpudiag.jobs.replay.job_replay import JobSlowdown
from tb_gpudiag.jobs.rules.job_registry import ABOUT_LATE_RANKS
from tb_gpudiag.jobs.rules.job_words import AGREEING, GROUPS_UNKNOWN, capitalized, culprits_text
from tb_gpudiag.jobs.rules.rank_findings import SharedFinding
from tb_gpudiag.jobs.rules.uneven_ranks import find_uneven, slowdown_found, slowdown_shown
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.shared.lost_time import CLEAR_LEAD, computing_limits
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import around, count, numbers_text, share, size_bytes, time_ns
from tb_gpudiag.wording.vocabulary import CAUSES, LIMITERS

# As in the verdict on one trace: removing less would hardly be noticed.
LEAST_SHARE = levels.SIZEABLE

_NODES = "graph"
"""Gaps between graph nodes: launches limit the job, but the host does not."""

_PART_LIMITERS = {
    "computing": "compute",
    "copying": "copy",
    "input": "input",
    "waiting": "waiting",
    "sync": "sync",
    "allocator": "memory",
    "initialization": "initialization",
    "python": "python",
    "host": "python",
    "compile": "compile",
    "profiler": "python",
    "dispatch": "launch",
    "launch": "launch",
    "latency": "launch",
    "graph": _NODES,
    "communicating": "communication",
    IN_COLLECTIVE: "communication",
}
"""Parts of a rank's time -> limiters. Others have no visible cause."""

_HOST: Final = ("python", "launch", "compile")


@dataclass(frozen=True)
class JobVerdict:
    """headline: the rank that the others wait for, why, and what that costs; "" if it is another matter."""

    limiter: str
    sentence: str
    headline: str = ""


def find_job_verdict(
    facts: JobFacts, findings: Sequence[RuleFinding], shared: Sequence[SharedFinding] = ()
) -> JobVerdict:
    """Name what limits all ranks together. findings, and those that ranks share: in their order, so that the
    verdict agrees with it."""
    if facts.set.kind == "snapshot":
        return JobVerdict("memory", _of_snapshots(facts, findings))
    if not len(facts.waits):
        why = (
            "They have no collective in common: they are of different steps or jobs, or do not say between "
            "which ranks they send."
        )
        if not len(facts.operations):
            why = "None of them has a collective in its step window."
        elif facts.recorded_differently:
            why = f"{GROUPS_UNKNOWN}."
        elif len(facts.matching):
            why = "Their clocks cannot be compared."
        ranks = count(len(facts.set.members), "rank")
        return JobVerdict("unknown", f"The recordings of {ranks} cannot be compared. {why}")
    first = next((one for one in findings if not one.finding.leads), None)
    loud = [one.finding.cost_us * 1e3 for one in shared if one.finding.severity > Severity.INFO]
    least_ns = max(LEAST_SHARE * max(1, facts.job_ns), *loud, 1.0)
    if first is not None and first.severity > Severity.INFO and first.finding.cost_ns >= least_ns:
        said, cost = first.finding.title, f"{share(first.finding.cost_ns, facts.job_ns)} of the time"
        if first.rule.topic in ABOUT_LATE_RANKS:
            saved_ns = first.finding.promise.high_ns
            if saved_ns < levels.HALF * first.finding.cost_ns:
                cost += f"; the fix saves {share(saved_ns, facts.job_ns)}, as other ranks are late then"
            return _late(facts, cost)
        if "%" not in said:
            said += f": {cost}"
        return JobVerdict("communication", f"{said}. {_waiting(facts)}")
    limiter, said = _shared_limiter(facts)
    waiting = _stragglers(facts) or _waiting(facts)
    late = any(one.finding.records_again for one in findings)
    not_counted = " That ranks began to record late is not counted." * late
    return JobVerdict(limiter, f"{said} {waiting}{not_counted}")


def _late(facts: JobFacts, cost: str) -> JobVerdict:
    """Say who comes late, why and what it costs. The finding says by how much, and how often."""
    uneven = find_uneven(facts)
    limiter = _PART_LIMITERS.get(uneven.part, "unknown") if uneven.found else "compute"
    members = uneven.members if uneven.pattern in ("persistent", "sometimes") else uneven.members[:0]
    who = culprits_text(facts, members) if len(members) else "a different rank each time"
    comes = f"{capitalized(who)} come{AGREEING[len(members) > 1].s} late because of {_noun(limiter)}"
    return JobVerdict(limiter, _waiting(facts), f"{comes}, which costs {cost}")


def _of_snapshots(facts: JobFacts, findings: Sequence[RuleFinding]) -> str:
    """Say what failed, and how much memory the ranks had."""
    allocated = facts.memory.allocated
    least, most = (size_bytes(int(size)) for size in (allocated.min(), allocated.max()))
    said = [f"{one.finding.title}. {one.finding.summary}" for one in findings]
    said.append(
        f"These are memory snapshots: they show memory, not time. At their peaks, the "
        f"{len(allocated):,} ranks had {' to '.join(dict.fromkeys((least, most)))} allocated."
    )
    return " ".join(said)


def limiter_parts(facts: JobFacts) -> dict[str, float]:
    """Time of the steady steps by limiter, mean over the ranks."""
    found: dict[str, float] = dict.fromkeys(dict.fromkeys([*_PART_LIMITERS.values(), "unknown"]), 0.0)
    for parts in facts.steady_parts:
        for part, ns in parts.items():
            found[_PART_LIMITERS.get(part, "unknown")] += ns / len(facts.set.members)
    return found


def _through_waits(facts: JobFacts, parts: dict[str, float]) -> tuple[dict[str, float], float]:
    """Return the parts with waiting in collectives as what the rank that came last did meanwhile, as far as a
    replay shows that it would remain without stragglers, and how much that is, mean over the ranks.

    It remains where all ranks take about as long. Hosts that launch ahead of the collective, but hardly ahead
    of one another, keep a GPU waiting inside of it for as long as they take: in a public job of four ranks,
    collectives are exposed 38% of the time, and the last rank's host is 3 ms later of 77.
    """
    slowdown, waits = slowdown_found(facts), facts.waits
    if slowdown is None or not parts["communication"]:
        return parts, 0.0
    waiting_ns = np.bincount(waits.collective, waits.exposed_waiting_ns, len(waits))
    exposed_ns = waiting_ns.sum() + waits.exposed_transfer_ns.sum()
    spent = facts.operations.parts[waits.last_row] * facts.operations.own_parts
    known = spent.sum(axis=1) > 0
    if not waiting_ns[known].any():
        return parts, 0.0
    waited = parts["communication"] * float(waiting_ns[known].sum() / exposed_ns)
    waited -= _saved(slowdown) * sum(parts.values())
    if waited <= 0:
        return parts, 0.0
    mix = (waiting_ns[known] / spent[known].sum(axis=1)) @ spent[known]
    found = parts | {"communication": parts["communication"] - waited}
    for name, ns in zip(facts.operations.part_names, mix.tolist(), strict=True):
        found[_PART_LIMITERS.get(name, "unknown")] += waited * ns / float(mix.sum())
    return found, waited


def _counted(waited: float, whole: float) -> str:
    """Say that waiting is in the shares, behind a sentence; "" if there is hardly any."""
    if waited < LEAST_SHARE * whole:
        return ""
    return (
        f" {share(waited, whole)} of it is waiting in collectives, charged to whatever the slowest rank was "
        "doing."
    )


def _shared_limiter(facts: JobFacts) -> tuple[str, str]:
    """Return the limiter of all ranks, and a sentence about it. Shares are of a rank's time."""
    parts, waited = _through_waits(facts, limiter_parts(facts))
    whole = max(1.0, sum(parts.values()))
    host = sum(parts[name] for name in _HOST)
    groups = {name: ns for name, ns in parts.items() if name not in _HOST} | {"host": host}
    others = {name: ns for name, ns in groups.items() if name != "compute"}
    first, second = sorted(others, key=lambda name: -others[name])[:2]
    computing, part = share(parts["compute"], whole), share(others[first], whole)
    if computing_limits(parts["compute"], others[first], whole) or others[first] < LEAST_SHARE * whole:
        return "compute", f"Computing limits every rank: {computing} of its time."
    if others[first] < CLEAR_LEAD * others[second]:
        both = f"{part} {_noun(first)} and {share(others[second], whole)} {_noun(second)}"
        said = f"No single cause limits this job: {computing} computing, {both}."
        return "mixed", said + _counted(waited, whole)
    limiter = "launch" if first == _NODES else first
    if first != "host" and parts["compute"] >= CLEAR_LEAD * others[first]:
        said = f"After computing ({computing}), {_noun(first)} costs every rank most: {part} of its time."
        return limiter, said + _counted(waited, whole)
    if first == "communication":
        return (
            first,
            f"Communication limits every rank: transfers and waiting that nothing hides take {part} of its "
            "time.",
        )
    if first != "host":
        said = f"{capitalized(_noun(first))} limits every rank: {part} of its time."
        return limiter, said + _counted(waited, whole)
    if not facts.on_gpu:
        limiter = max(_HOST, key=lambda name: parts[name])
        if parts["compute"] >= host:
            said = f"After computing ({computing}), the host's own code costs every rank most"
            return limiter, f"{said}: {part} of its time."
        return limiter, f"The host's own code limits every rank: {part} of its time."
    limiter = _host_limiter(facts, parts)
    what = _ON_HOST[limiter]
    where = f"GPU idle {part}" if not waited else f"its GPU waits for a host {part} of the time"
    return limiter, f"{what} limits every rank ({where}).{_counted(waited, whole)}"


def _host_limiter(facts: JobFacts, parts: dict[str, float]) -> str:
    """What the hosts mostly do. Time in an operator is its dispatch, or the operator takes long by itself or
    is stopped: the ranks' own reports tell which."""
    most = max(_HOST, key=lambda name: parts[name])
    findings = [finding for member in facts.set.members for finding in member.findings]
    costs = {name: sum(each.cost_us for each in findings if each.rule in ids_of(name)) for name in _HOST}
    told = max(_HOST, key=lambda name: costs[name])
    return told if costs[told] > CLEAR_LEAD * costs[most] else most


_ON_HOST = {"launch": "Launching kernels", "python": "The host's own code", "compile": "Compilation"}


def _noun(limiter: str) -> str:
    names = {_NODES: CAUSES[_NODES].noun, "host": "waiting for the host", "compute": "computing"}
    return names.get(limiter) or LIMITERS[limiter].noun


def _waiting(facts: JobFacts) -> str:
    """Say who waits for whom, in the collectives that can be judged."""
    waits = facts.waits
    members = len(facts.set.members)
    waiting = waits.waiting_by(waits.member.astype(np.int64), members).sum() / members
    transfer = int(waits.transfer_ns.sum())
    collectives = count(len(waits), "collective")
    if facts.waits_for_absent:
        return (
            f"{collectives} take {time_ns(waiting + transfer)} for transfers and for ranks without a trace."
        )
    if waiting < LEAST_SHARE * transfer:
        return f"Ranks hardly wait for one another: {time_ns(waiting)} each in {collectives}."
    late = Counter(facts.set.ranks[m] for m in waits.last_member[~facts.starts.first].tolist())
    judged = count(sum(late.values()), "collective")
    ranked = sorted(late.items(), key=lambda one: (-one[1], one[0]))[:3]
    who = ", ".join(f"rank {numbers_text([rank])} in {times}" for rank, times in ranked)
    last = around(" Last to arrive: ", who, f" of {judged} after the first.")
    return (
        f"In {collectives} a rank waits {time_ns(waiting)} for later ones, on average; the transfers "
        f"take {time_ns(transfer)} in all.{last}"
    )


def _saved(slowdown: JobSlowdown) -> float:
    """What removing all stragglers saves, as a share of the steps."""
    return max(0.0, 1 - 1 / slowdown.s)


def _stragglers(facts: JobFacts) -> str:
    """Say what waiting costs by a replay without stragglers; "" without such a replay."""
    slowdown = slowdown_shown(facts)
    if slowdown is None:
        return ""
    saved = _saved(slowdown)
    how_much, joint = ("is minor", "but") if saved < LEAST_SHARE else ("costs more", "and")
    latest = "".join(
        f"rank {facts.set.ranks[member]} is latest, {joint} " for member in list(slowdown.by_member)[:1]
    )
    return f"Waiting for other ranks {how_much}: {latest}removing all stragglers saves {share(saved)}."
