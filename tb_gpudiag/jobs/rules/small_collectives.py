"""GD608: many small collectives in a row that could be one."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.bandwidth import SMALL_BYTES
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.operations import COMPUTING
from tb_gpudiag.jobs.rules.job_verdict import limiter_parts
from tb_gpudiag.jobs.rules.job_words import at_most, called_from, capitalized, collective_text
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, RuleAnswer
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import FSDP, GRADIENTS
from tb_gpudiag.wording.format import count, share, size_bytes
from tb_gpudiag.wording.quantity import duration, number, size

FIXES = page_fixes(__name__)

# Below this, a fix is hardly noticed.
LEAST_SHARE = levels.MEASURABLE

# A few messages in a row are what libraries send by themselves: sizes before data, a norm, a flag.
LEAST_IN_A_ROW = 8

# Collectives follow one another directly if computing takes less of the time from one to the next than this.
BETWEEN_SHARE = levels.SIZEABLE

# FSDP gathers a unit twice in a step and reduces it once. Norms and heads are a few small units of a model.
LEAST_OF_UNITS = 3 * LEAST_IN_A_ROW

# Their kinds: the messages of one tensor, and the same kinds are sent for many tensors together.
_JOINABLE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@dataclass(frozen=True)
class SmallCollectives:
    """Collectives that follow one another directly, several of them small: one kind, group and step.

    kind: that takes most of the time, or the caller of all. count: collectives in a row, median. bytes: of
    one, median. several: collectives of a rank that are in such rows. time_ns: the latencies in the rows,
    without computing and the wait at their first collective, mean over ranks. lost_ns: the part of it that
    one collective for each row saves. saved_ns: the same with the calls between them, which go, too, and with
    the wait at the first collective on a CPU: its back ends take the cores that later ranks compute on.
    """

    kind: str = ""
    count: int = 0
    bytes: int = 0
    several: int = 0
    time_ns: int = 0
    lost_ns: int = 0
    saved_ns: int = 0


def check(facts: JobFacts) -> RuleAnswer:
    """Find rows of small collectives that cost more than one large collective would."""
    rows, window_ns = rows_of(facts), facts.job_ns
    units = max((units_of(facts, caller) for caller in _UNITS), key=lambda found: found.lost_ns)
    if units.lost_ns >= max(rows.lost_ns, LEAST_SHARE * window_ns):
        return _of_units(facts, units)
    if rows.lost_ns < LEAST_SHARE * window_ns or not rows.count:
        return Clear(f"small collectives in a row cost {share(rows.lost_ns, window_ns)} of the step window")
    kind = collective_text(rows.kind)
    return Finding(
        title=f"{count(rows.count, kind)} in a row take {share(rows.time_ns, window_ns)} of the time by "
        "their number",
        summary=f"{capitalized(kind)} operations of {size_bytes(rows.bytes)} follow one another, and nothing "
        "computes between them. Each takes at least its latency, whatever its size: this is all of that.",
        fix=FIXES["flat"],
        places=called_from(facts, _rows(facts)[0] != NONE),
        cost_ns=rows.lost_ns,
        saving=at_most(facts, rows.saved_ns, beyond=_CALLS),
        evidence=[
            Evidence("In a row", number(rows.count, "collective")),
            Evidence("Message size", size(rows.bytes)),
            Evidence.of_window("Rows of small collectives, per rank", rows.time_ns, window_ns),
            Evidence("One of them", duration(rows.time_ns / rows.several)),
        ],
    )


def rows_of(facts: JobFacts) -> SmallCollectives:
    """Add up the rows of small collectives of all ranks."""
    row, first = _rows(facts)
    if not len(first):
        return SmallCollectives()
    operations, waits = facts.operations, facts.waits
    inside = np.flatnonzero(row != NONE)
    counts = np.bincount(row[inside])
    over = np.zeros(len(first), np.int64)
    np.maximum.at(over, row[inside], operations.end_ns[inside])
    computing = operations.parts[:, COMPUTING].copy()
    computing[first] = 0  # before the row, as what the ranks wait for at its first collective
    between = np.bincount(row[inside], computing[inside]).astype(np.int64)
    begins = np.isin(waits.row, first)
    waiting = waits.waiting_by(np.where(begins, row[waits.row], NONE), len(first))
    whole = np.maximum(0, over - operations.start_ns[first] - waiting)
    # What each would take if it were small: the rest is bytes, which travel as long in one message.
    took, few = (
        operations.end_ns[inside] - operations.start_ns[inside],
        operations.bytes[inside] <= SMALL_BYTES,
    )
    small, small_ns, all_ns = (np.bincount(row[inside], each) for each in (few, took * few, took))
    latency = np.minimum(1, small_ns / np.maximum(1, small) * counts / np.maximum(1, all_ns))
    latency *= small >= LEAST_IN_A_ROW
    time = (np.maximum(0, whole - between) * latency).astype(np.int64)
    kinds = np.bincount(operations.kind.code[first], time, len(operations.kind.texts))
    return _added_up(
        facts,
        operations.kind.texts[int(kinds.argmax())],
        inside,
        counts=counts,
        time_ns=time,
        freed_ns=((whole if facts.on_gpu else whole + waiting) * latency).astype(np.int64),
    )


def units_of(facts: JobFacts, caller: str) -> SmallCollectives:
    """Add up the messages of FSDP, or those of hooks on gradients as of DDP, if most of them are small. They
    are no row: their units compute in between. count: in a step of a rank."""
    operations, waits, members = facts.operations, facts.waits, len(facts.set.members)
    whole = _of(facts, caller)
    small = whole & (operations.bytes > 0) & (operations.bytes <= SMALL_BYTES)
    several = int(small.sum()) // members
    count = several // max(1, len(facts.own_time.steps))
    if count < LEAST_OF_UNITS or small.sum() < levels.HALF * whole.sum():
        return SmallCollectives()
    # Several may be under way at once: together they take no more of a rank's time than its account says.
    most_ns = members * int(limiter_parts(facts)["communication"])
    sent_ns = int(waits.exposed_transfer_ns[small[waits.row]].sum())
    all_ns = int(waits.exposed_waiting_ns.sum() + waits.exposed_transfer_ns.sum())
    time = np.array([min(sent_ns, most_ns * sent_ns // max(1, all_ns))])
    calls = operations.own_parts.copy()
    calls[COMPUTING] = False
    exposed_ns = min(int(operations.exposed_ns[small].sum()), most_ns)
    freed = np.array([exposed_ns + operations.parts[small][:, calls].sum()])
    return _added_up(
        facts,
        caller,
        np.flatnonzero(small),
        counts=np.array([count]),
        time_ns=time,
        freed_ns=time if facts.on_gpu else freed,
    )


def _of(facts: JobFacts, caller: str) -> Bool:
    """Mask of the operations of one tensor with this caller, shape (n,)."""
    operations = facts.operations
    return operations.of_kinds(_JOINABLE) & operations.caller.where(lambda text: text == caller)


def _added_up(
    facts: JobFacts, kind: str, inside: Int64, *, counts: Int64, time_ns: Int64, freed_ns: Int64
) -> SmallCollectives:
    """inside: operations in any row. counts, time_ns, freed_ns: of each row, shape (rows,)."""
    members, saved = len(facts.set.members), 1 - 1 / counts
    return SmallCollectives(
        kind=kind,
        count=int(np.median(counts)),
        bytes=int(np.median(facts.operations.bytes[inside])),
        several=len(inside) // members,
        time_ns=int(time_ns.sum()) // members,
        lost_ns=int((time_ns * saved).sum()) // members,
        saved_ns=int((freed_ns * saved).sum()) // members,
    )


def _of_units(facts: JobFacts, units: SmallCollectives) -> Finding:
    window_ns, (title, together, fix) = facts.job_ns, _UNITS[units.kind]
    return Finding(
        title=f"{title}, {units.count:,} times a step: {share(units.time_ns, window_ns)} of the time",
        summary=f"A message of {size_bytes(units.bytes)} takes as long as its latency. {together} of several "
        "layers can travel together.",
        fix=fix,
        places=called_from(facts, _of(facts, units.kind)),
        cost_ns=units.lost_ns,
        saving=at_most(facts, units.saved_ns, beyond=_CALLS),
        evidence=[
            Evidence("In a step", number(units.count, "collective")),
            Evidence("Message size", size(units.bytes)),
            Evidence.of_window("Their transfers that nothing hides, per rank", units.time_ns, window_ns),
        ],
    )


def _rows(facts: JobFacts) -> tuple[Int64, Int64]:
    """Return the row of each operation, or NONE, shape (n,), and the first operation of each row."""
    operations = facts.operations
    joinable = operations.of_kinds(_JOINABLE) & (operations.bytes > 0)
    joinable &= facts.matching.collective != NONE
    passed = operations.start_ns - operations.since_ns
    new = operations.parts[:, COMPUTING] > BETWEEN_SHARE * passed
    new |= ~joinable | np.r_[True, ~joinable[:-1]]
    # Operations are by member and then by time: one of another kind or group ends a row.
    for column in (operations.member, operations.step.code, operations.kind.code, facts.channels.of):
        new |= np.diff(column, prepend=NONE - 1) != 0
    run = np.cumsum(new) - 1
    row = np.full(len(operations), NONE, np.int64)
    long = np.flatnonzero(joinable & (np.bincount(run)[run] >= LEAST_IN_A_ROW))
    first, row[long] = np.unique(run[long], return_index=True, return_inverse=True)[1:]
    return row, long[first]


_CALLS = "the calls between the collectives go, too"

_UNITS = {
    FSDP: (
        "FSDP gathers and reduces small units by themselves",
        "Each unit has hooks in Python, too. The weights",
        FIXES["units"],
    ),
    GRADIENTS: ("Gradients are reduced in small messages", "The gradients", FIXES["buckets"]),
}
