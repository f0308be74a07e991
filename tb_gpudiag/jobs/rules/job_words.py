"""What several rules on jobs share: words for ranks, for parts of a rank's time and for what was not
recorded, and what a job saves if its ranks no longer send something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.rules.answer import CannotTell, Evidence, Place
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes, numbers_text, one_line, ranks_text
from tb_gpudiag.wording.vocabulary import CAUSES, term

if TYPE_CHECKING:
    from tb_gpudiag.jobs.ranks.job_facts import JobFacts

from tb_gpudiag.rules.answer import Saving

_MOST_PLACES: Final = 5

LATE_RECORDING = "late_recording"
"""Why the last rank was late: its recording started late. All other reasons are parts of the rank's time."""

RECORD_STEPS = (
    "Record at least five steps on all ranks at once: schedule(wait=5, warmup=2, active=6), begun in the "
    "same step."
)

GROUPS_UNKNOWN = (
    "Nsight Systems does not say which process group a collective is of, as torch.profiler does, so those of "
    "the one cannot be matched with those of the other"
)


class Agreeing(NamedTuple):
    """Words that agree with one rank or with several. s: the ending of a verb."""

    s: str
    has: str
    its: str
    it: str


AGREEING: Final = {False: Agreeing("s", "has", "its", "it"), True: Agreeing("", "have", "their", "them")}
"""By whether there are several."""


def not_matched(facts: JobFacts) -> CannotTell:
    """Return the answer of rules that compare arrivals, if no collective was matched."""
    if facts.recorded_differently:
        return CannotTell(GROUPS_UNKNOWN, "Record all ranks with the same profiler.")
    return CannotTell("no collective could be matched between the ranks", RECORD_STEPS)


def ranks_absent() -> CannotTell:
    """Return the answer of rules that measure transfers, if ranks of every process group have no trace."""
    return CannotTell(
        "every group has ranks without a trace, and waiting for one looks like transfer",
        "Record all ranks in the same steps.",
    )


def ranks_evidence(facts: JobFacts, members: Int64) -> Evidence:
    """Return the ranks that a finding is about."""
    return Evidence("Rank" if len(members) == 1 else "Ranks", numbers_text(facts.ranks(members)))


def culprits_text(facts: JobFacts, members: Int64) -> str:
    """Name the ranks, and their host if they are all of its ranks and the job has other hosts."""
    text = ranks_text(facts.ranks(members))
    abouts = [member.about for member in facts.set.members]
    hosts = {abouts[member].host for member in members.tolist()}
    if len(hosts) == 1 and (host := hosts.pop()):
        on_host = [about.rank for about in abouts if about.host == host]
        if 1 < len(on_host) == len(members) < len(abouts):
            return f"{text} (host {in_quotes(host, 60)})"
    return text


def capitalized(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def part_text(part: str) -> str:
    """A part of a rank's time inside a sentence."""
    return _WORK.get(part) or term(CAUSES, part).noun


_WORK = {"computing": "computing", "copying": "copies", "communicating": "communication"}


def place_of(text: str, time_ns: int = 0) -> Place:
    """Make a place of `function (file)`, or of an operator."""
    function, _, file = text.rpartition(" (")
    if function and file.endswith(")"):
        return Place(file=one_line(file[:-1]), function=one_line(function), time_ns=time_ns)
    return Place(operator=one_line(text), time_ns=time_ns)


def most_places(texts: Sequence[str], time_ns: Int64) -> list[Place]:
    """Return the places where most time goes, and no small ones. time_ns: of each text."""
    most = [(texts[i], int(time_ns[i])) for i in np.argsort(-time_ns)[:_MOST_PLACES].tolist()]
    return [place_of(text, ns) for text, ns in most if text and ns > levels.SIZEABLE * time_ns.max(initial=0)]


def called_from(facts: JobFacts, chosen: Bool) -> list[Place]:
    """Return the user's functions that call these operations, most time first. chosen: mask, shape (n,)."""
    operations = facts.operations
    length_ns, at = operations.end_ns - operations.start_ns, operations.called_at
    time_ns = np.bincount(at.code[chosen], length_ns[chosen], len(at.texts)) / len(facts.set.members)
    return most_places(at.texts, time_ns.astype(np.int64))


def collective_text(kind: str) -> str:
    """A kind of collective inside a sentence."""
    return kind.replace("_", "-")


def at_most(facts: JobFacts, freed_ns: int, *, sure_ns: int = 0, beyond: str = "") -> Saving:
    """Return what a fix saves at most that frees this much of the ranks' time.

    sure_ns: transfers that the job does not need, while nothing computes. On a CPU, all ranks are in them,
    and do without them what they do now. A GPU's host may take as long for its other work: nothing is sure.
    """
    if facts.on_gpu:
        return Saving(0, freed_ns, "at most", beyond)
    return Saving(min(sure_ns, freed_ns), freed_ns, "estimate", beyond)
