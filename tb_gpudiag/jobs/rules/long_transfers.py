"""GD609: which collectives the time goes into, if transfers that nothing hides take most of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.bandwidth import SMALL_BYTES, SizeClass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_verdict import limiter_parts
from tb_gpudiag.jobs.rules.job_words import at_most, called_from, capitalized, collective_text
from tb_gpudiag.jobs.rules.small_collectives import rows_of
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import fix_code, page_fixes
from tb_gpudiag.rules.shared.exposure_advice import KEEP_WHOLE, REDUCE_ONCE
from tb_gpudiag.rules.shared.lost_time import CLEAR_LEAD
from tb_gpudiag.vocabulary import levels, marks
from tb_gpudiag.vocabulary.collective_kinds import FSDP, GRADIENTS, OPTIMIZER
from tb_gpudiag.wording.format import share, size_bytes
from tb_gpudiag.wording.quantity import duration, mean, number, size

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

# Healthy jobs of two ranks on one CPU show up to 30%, and simulated ones of tensor-parallel layers 28%.
LEAST_SHARE = 0.40

# Where the verdict says that communication limits the ranks, what it consists of is said from here on.
LEAST_OF_MOSTLY = levels.LARGE

# Ranks that reduce their gradients have equal weights: whatever sends these again can go. So can gradients of
# a micro-batch if those of the last one are reduced anyway.
LEAST_SHARE_AGAIN = levels.NOTICEABLE

# DDP's broadcasts of buffers are named instead of all transfers if they are this much of them.
MOST_TRANSFER = levels.HALF

# A loss or a count that is reduced beside gradients does not make them others.
BESIDE_BYTES = 64

_REDUCED_AGAIN: Final = "reduced_again"
"""The reason of what is sent for a micro-batch and again for a later one."""

SHOWN: Final = 3


def check(facts: JobFacts) -> RuleAnswer:
    """Add up the transfers in which nothing computes: communication that is not waiting for another rank."""
    window_ns, waits, members = facts.job_ns, facts.waits, len(facts.set.members)
    waiting_ns = waits.waiting_by(waits.member.astype(np.int64), members).sum() / members
    parts = limiter_parts(facts)
    communicating_ns = int(parts["communication"])
    transfer_ns = max(0, int(communicating_ns - waiting_ns) - rows_of(facts).lost_ns)
    for again in (_WEIGHTS, _GRADIENTS):
        chosen = _sent_again(facts, again)
        if _length_ns(facts, chosen) >= LEAST_SHARE_AGAIN * window_ns:
            return _of_sent_again(facts, again, chosen)
    micro_ns = _mean_ns(facts, facts.operations.exposed_ns, _of_micro_batches(facts))
    if micro_ns >= LEAST_SHARE_AGAIN * window_ns:
        return _each_micro_batch(facts, micro_ns)
    # Broadcasts in a forward pass of DistributedDataParallel are its buffers.
    forward = facts.operations.annotation.where(lambda text: bool(marks.DDP_FORWARD.fullmatch(text)))
    buffers = facts.operations.of_kinds({"broadcast"}) & forward
    if _transfer_ns(facts, buffers) >= max(LEAST_SHARE_AGAIN * window_ns, MOST_TRANSFER * transfer_ns):
        return _buffers(facts, buffers)
    least = LEAST_OF_MOSTLY if CLEAR_LEAD * communicating_ns > parts["compute"] else LEAST_SHARE
    if transfer_ns < least * window_ns:
        return Clear(f"transfers that nothing hides take {share(transfer_ns, window_ns)} of the step window")
    most = facts.sizes[0]
    of = f" of {size_bytes(most.bytes)}" if most.bytes > 0 else ""
    return Finding(
        title=f"Transfers that nothing hides take {share(transfer_ns, window_ns)} of the time, most of them "
        f"{collective_text(most.kind)}s{of}",
        summary="All ranks have arrived, data moves, and nothing computes. Whether the job needs all of this "
        "data, the traces cannot show.",
        fix=FIXES["fewer"] if 0 < most.bytes <= SMALL_BYTES else FIXES["less"],
        places=called_from(facts, facts.operations.of_kinds({most.kind})),
        cost_ns=transfer_ns,
        saving=at_most(facts, communicating_ns),
        evidence=[
            Evidence.of_window("Exposed transfer", transfer_ns, window_ns),
            *(_described(one, len(facts.own_time.steps)) for one in facts.sizes[:SHOWN]),
        ],
    )


@dataclass(frozen=True)
class _SentAgain:
    """What carries as many bytes in each step as the gradients that were reduced, and so can go."""

    kind: str
    caller: str | None  # of those that are sent again; None: any but an optimizer
    of: str | None  # caller of the gradients' reductions; None: any
    title: str
    summary: str
    label: str
    fix: Fix


def _sent_again(facts: JobFacts, again: _SentAgain) -> Bool:
    """Mask of these operations, shape (n,). Empty if they carry anything else, or more or less in any step.
    An optimizer that shares its state out among the ranks has to send what each of them updated."""
    operations, steps = facts.operations, len(facts.operations.step.texts)
    chosen = operations.of_kinds({again.kind})
    chosen &= ~_called_by(facts, OPTIMIZER) if again.caller is None else _called_by(facts, again.caller)
    reduced = operations.of_kinds({"all_reduce"})
    if again.of is not None:
        reduced &= _called_by(facts, again.of)
    key = operations.member.astype(np.int64) * steps + operations.step.code
    sent, gradients = (
        np.bincount(key[some], operations.bytes[some], len(facts.set.members) * steps)
        for some in (chosen, reduced)
    )
    known = (gradients > SMALL_BYTES) | (sent > BESIDE_BYTES)
    exactly = known.any() and not (np.abs(sent - gradients)[known] > BESIDE_BYTES).any()
    return chosen & exactly


def _called_by(facts: JobFacts, name: str) -> Bool:
    """Mask of the operations with this caller, shape (n,)."""
    return facts.operations.caller.where(lambda text: text == name)


def _mean_ns(facts: JobFacts, time_ns: Int64, chosen: Bool) -> int:
    return int(time_ns[chosen].sum()) // len(facts.set.members)


def _length_ns(facts: JobFacts, chosen: Bool) -> int:
    return _mean_ns(facts, facts.operations.end_ns - facts.operations.start_ns, chosen)


def _transfer_ns(facts: JobFacts, chosen: Bool) -> int:
    """How long these transfer while nothing computes, mean over the ranks."""
    return _mean_ns(facts, facts.waits.exposed_transfer_ns, chosen[facts.waits.row])


def _of_micro_batches(facts: JobFacts) -> Bool:
    """Mask of what is sent for several micro-batches before the optimizer steps, shape (n,)."""
    return facts.operations.why.where(lambda text: text == _REDUCED_AGAIN)


def _each_micro_batch(facts: JobFacts, exposed_ns: int) -> Finding:
    chosen = _of_micro_batches(facts)
    gathers = chosen & facts.operations.of_kinds({"all_gather"})
    sure_ns = _transfer_ns(facts, chosen)
    said = _REPLICATED, REDUCE_ONCE, Severity.WARNING
    if (chosen & _called_by(facts, FSDP)).any():  # there may be memory for some units only
        said, sure_ns = (_SHARDED, KEEP_WHOLE, Severity.INFO), 0
    summary, fix, severity = said
    freed_ns = exposed_ns if facts.on_gpu else _length_ns(facts, chosen)
    what = "FSDP gathers weights and reduces gradients" if gathers.any() else "Gradients are reduced"
    return Finding(
        title=f"{what} in each micro-batch, although the optimizer steps after the last one: "
        f"{share(exposed_ns, facts.job_ns)} of the time",
        summary=summary,
        fix=fix,
        places=called_from(facts, chosen),
        cost_ns=exposed_ns,
        saving=at_most(facts, freed_ns, sure_ns=sure_ns),
        evidence=[
            *_repeated(facts, "Reductions", "Reductions before the last micro-batch's", chosen & ~gathers),
            *_repeated(facts, "Gathers", "Gathers after the first micro-batch's", gathers),
            Evidence.of_window("Exposed", exposed_ns, facts.job_ns),
        ],
        severity=severity,
    )


def _repeated(facts: JobFacts, name: str, label: str, chosen: Bool) -> list[Evidence]:
    """How long these take, and how many of all operations they are, mean over the ranks."""
    if not chosen.any():
        return []
    members = len(facts.set.members)
    return [
        Evidence.of_window(label, _length_ns(facts, chosen), facts.job_ns),
        Evidence(
            name,
            number(int(chosen.sum()) // members),
            (f"of {len(facts.operations) // members:,} collectives",),
        ),
    ]


def _of_sent_again(facts: JobFacts, again: _SentAgain, chosen: Bool) -> Finding:
    again_ns = _length_ns(facts, chosen)
    return Finding(
        title=f"{again.title}: {share(again_ns, facts.job_ns)} of the time",
        summary=again.summary,
        fix=again.fix,
        places=called_from(facts, chosen),
        cost_ns=again_ns,
        saving=at_most(facts, again_ns, sure_ns=_transfer_ns(facts, chosen)),
        evidence=[
            Evidence.of_window(again.label, again_ns, facts.job_ns),
            *(_described(one, len(facts.own_time.steps)) for one in facts.sizes[:SHOWN]),
        ],
        severity=Severity.WARNING,
    )


def _buffers(facts: JobFacts, chosen: Bool) -> Finding:
    length_ns, buffers_ns = _length_ns(facts, chosen), _transfer_ns(facts, chosen)
    largest = int(facts.operations.bytes[chosen].max())
    of = f" of {size_bytes(largest)}" if largest > 0 else ""
    return Finding(
        title="Buffers of the model are broadcast before each forward pass: "
        f"{share(buffers_ns, facts.job_ns)} of the time",
        summary=f"DistributedDataParallel sends the buffers of rank 0 to all ranks, in messages{of}, and the "
        "forward pass waits for them. Whether they have to be equal, the traces cannot show.",
        fix=FIXES["buffers"],
        places=called_from(facts, chosen),
        cost_ns=buffers_ns,
        saving=at_most(facts, max(buffers_ns, length_ns)),
        evidence=[
            Evidence.of_window("Broadcasts of buffers", length_ns, facts.job_ns),
            Evidence.of_window("Exposed transfer", buffers_ns, facts.job_ns),
            Evidence("Messages", number(int(chosen.sum()) // len(facts.set.members))),
        ],
    )


def _described(one: SizeClass, steps: int) -> Evidence:
    """Return how long the collectives of one size take."""
    shortest = min(int(link.transfer_ns.min()) for link in one.links)
    return Evidence(
        capitalized(collective_text(one.kind)),
        duration(one.transfer_ns, "each"),
        (
            duration(shortest, "the shortest"),
            mean(one.count / max(1, len(one.links)) / max(1, steps), "per step"),
            *((size(one.bytes),) if one.bytes > 0 else ()),
        ),
    )


_REPLICATED: Final = (
    "Later micro-batches add to these gradients, and reduce as many bytes again. Only the last sum has to be "
    "equal on all ranks."
)

# It is what FSDP is for: less memory, more communication. Whether there is memory, the traces cannot show.
_SHARDED: Final = (
    "Nothing changes the weights before the optimizer steps, and only the last sum of the gradients has to "
    "be reduced. Sending both once a step costs memory: until then, each rank keeps all, not its shard."
)

_WEIGHTS = _SentAgain(
    kind="broadcast",
    caller=None,
    of=None,
    title="Weights are broadcast in each step, although their gradients are reduced",
    summary="The broadcasts of each step carry exactly as many bytes as the gradients that all ranks "
    "reduce. Ranks that begin with equal weights and apply equal gradients have equal weights.",
    label="Broadcasts",
    fix=Fix(
        "Broadcast weights once, before the training: DistributedDataParallel does so by itself.",
        CODE["once"],
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
    ),
)

_GRADIENTS = _SentAgain(
    kind="all_reduce",
    caller="",
    of=GRADIENTS,
    title="Gradients are reduced twice in each step",
    summary="Hooks, such as those of DistributedDataParallel, reduce the gradients in the backward pass. "
    "Other reductions of each step carry as many bytes again: the gradients, which are equal on all ranks "
    "already.",
    label="Reductions that no hook calls",
    fix=Fix(
        "Leave the averaging to DistributedDataParallel, and take the loop over the gradients out.",
        CODE["once"],
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
    ),
)

# A small message takes as long as its latency: fewer bytes change nothing.
