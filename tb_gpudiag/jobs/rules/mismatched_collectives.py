"""GD605: ranks that do not call the same collectives."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from tb_gpudiag.jobs.ranks.clocks import BLOCKING
from tb_gpudiag.jobs.ranks.collective_matching import Mismatch
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import (
    AGREEING,
    Agreeing,
    capitalized,
    collective_text,
    culprits_text,
    not_matched,
    ranks_evidence,
)
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count, ranks_text, size_bytes
from tb_gpudiag.wording.quantity import number

FIXES = page_fixes(__name__)

# Ends of one collective differ by microseconds. If a rank leaves before another one arrives, by more than
# this, the two are not the same collective, or the clocks are wrong.
APART_NS = 1_000_000

# Some operations, such as a send into a buffer, may end early. Where most do, the matching is wrong.
APART_SHARE = levels.HALF

SHOWN = 5


def check(facts: JobFacts) -> RuleAnswer:
    """Find collectives that differ between ranks in kind, size or order, or that a rank lacks."""
    found = [one for one in facts.matching.mismatches if one.what != "ambiguous"]
    if facts.recorded_differently and found:
        found = [one for one in found if one.what != "apart"]
        if not found:
            return not_matched(facts)
    if found:
        return _finding(facts, found)
    if facts.matching.mismatches:
        who = ranks_text(facts.ranks(np.array(facts.matching.mismatches[0].members)))
        return CannotTell(
            f"collectives have no sequence numbers, and {who} may have started at one of several places",
            "Record with torch 2.5 or later, or start the recording of all ranks in the same step.",
        )
    if not len(facts.matching):
        if not len(facts.operations):
            return CannotTell("no rank recorded a collective", "Record steps in which the ranks communicate.")
        return CannotTell(
            "no collective is on more than one of these ranks", "Record all ranks of a process group."
        )
    apart = _left_before(facts)
    if apart >= APART_SHARE:
        return _not_simultaneous(facts, apart)
    return Clear(f"all {count(len(facts.matching), 'matched collective')} agree in kind, size and order")


def _left_before(facts: JobFacts) -> float:
    """Share of the blocking collectives that a rank left before another one arrived."""
    waits = facts.waits
    if not len(waits):
        return 0.0
    judged = facts.operations.of_kinds(BLOCKING)[waits.last_row]
    if not judged.any():
        return 0.0
    earliest = np.minimum.reduceat(waits.end_ns, waits.bounds[:-1])
    return float((waits.last_ns - earliest > APART_NS)[judged].mean())


def _not_simultaneous(facts: JobFacts, apart: float) -> Finding:
    return Finding(
        title="Collectives that should be the same did not run at the same time",
        summary="In most of the collectives that agree in kind, size and order, a rank leaves before another "
        "one arrives. These recordings are of different steps, or of different jobs. Nothing is said about "
        "waiting.",
        fix=FIXES["same_path"],
        leads=True,
        evidence=[Evidence("Left early", number(round(apart * len(facts.waits)), "collective"))],
        severity=Severity.WARNING,
    )


def _finding(facts: JobFacts, found: list[Mismatch]) -> Finding:
    by_kind: dict[str, list[Mismatch]] = defaultdict(list)
    for one in found:
        by_kind[one.what].append(one)
    what = next(kind for kind in ("kind", "bytes", "order", "missing", "apart") if kind in by_kind)
    worst = by_kind[what]
    members = Counter(member for one in worst for member in one.members)
    who = culprits_text(facts, np.array(sorted(members)))
    agreeing = AGREEING[len(members) > 1]
    times = sum(one.count for one in worst)
    return Finding(
        title=_title(what, capitalized(who), agreeing, times, worst[0]),
        summary=_SUMMARIES[what],
        fix=FIXES["same_path"],
        leads=True,
        evidence=[
            ranks_evidence(facts, np.array(sorted(members))),
            Evidence("Matched", number(len(facts.matching), "collective")),
            Evidence("Mismatched", number(sum(one.count for one in found), "collective")),
            *(Evidence(*_described(facts, one)) for one in worst[:SHOWN]),
        ],
        severity=Severity.INFO.when(what == "missing" and times == 1),
    )


def _title(what: str, who: str, agreeing: Agreeing, times: int, first: Mismatch) -> str:
    s, has, _, _ = agreeing
    usual, odd = first.values
    match what:
        case "kind":
            return (
                f"{who} call{s} {collective_text(odd)} where others call {collective_text(usual)}, "
                f"{count(times, 'time')}"
            )
        case "bytes":
            sizes = f"{size_bytes(int(odd))} where others send {size_bytes(int(usual))}"
            return f"{who} send{s} {sizes}, {count(times, 'time')}"
        case "order":
            return f"{who} call{s} collectives in another order or number than the others"
        case "missing":
            return f"{who} lack{s} {count(times, 'collective')} that others have"
    return f"{who} {has} no collective in common with the others"


_SUMMARIES = {
    "kind": "Ranks of one process group call different collectives under one sequence number. NCCL does not "
    "check this: the job hangs, or its results are wrong.",
    "bytes": "Ranks of one process group call the same collective with different sizes. NCCL does not check "
    "this: the job may hang, or its results are wrong. These collectives are not compared.",
    "order": "Collectives have no sequence numbers, and the order on these ranks differs. They run other "
    "code, or recorded other steps. What does not fit is not compared.",
    "missing": "The trace lacks collectives between others that it has. It is sampled or incomplete, or this "
    "rank runs other code. They are not compared.",
    "apart": "Sequence numbers do not overlap: these recordings are of different steps or of different jobs. "
    "Nothing is said about waiting between them.",
}


def _described(facts: JobFacts, one: Mismatch) -> tuple[str, str]:
    who = ranks_text(facts.ranks(np.array(one.members)))
    usual, odd = one.values
    if one.what == "bytes":
        return one.where, f"{who}: {size_bytes(int(odd))}, others: {size_bytes(int(usual))}"
    if one.what == "kind":
        return one.where, f"{who}: {collective_text(odd)}, others: {collective_text(usual)}"
    said = {"missing": "lacks", "order": "more of"}.get(one.what, one.what)
    return one.where, f"{who}: {said} {collective_text(usual)}".rstrip()
