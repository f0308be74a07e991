"""GD107: autograd's anomaly mode is on: each node of the backward pass looks for NaN and waits for the
answer."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.intervals import Intervals, clip, merged
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.sync_sites import calls_in
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Removable, RuleAnswer
from tb_gpudiag.rules.rule import Claimed, Rule, page_fixes
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import duration, number

FIXES = page_fixes(__name__)

# The mode checks every node. A backward pass of the user's own may look for NaN in some.
LEAST_CHECKED = levels.HALF

ERROR_SHARE = levels.LARGE

_STACKS = "each forward operator keeps its stack, which takes time that this trace does not show apart"


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find the time in the operators that look for NaN below autograd's nodes and in the frames that keep the
    stacks of forward operators, and what the GPU is idle after each look."""
    mode = facts.host_work.anomaly_mode
    if not mode.nodes or mode.checked < LEAST_CHECKED * mode.nodes:
        return Clear(f"{mode.checked} of {mode.nodes} nodes of the backward pass look for NaN")
    lost = lost_time(facts, claimed)
    chosen = _part_of_it(facts, lost)
    cost_ns = lost.total_ns(chosen)
    more = "" if facts.recorded.stacks else ", and more in the forward pass"
    spans = clip(mode.spans, facts.host_window.start_ns, facts.host_window.end_ns)
    return Finding(
        title=f"Anomaly mode is on: {lost.sentence('it', cost_ns)}{more}",
        summary="After each node of the backward pass, torch looks for NaN in the gradients and waits for "
        "the answer, and it keeps the Python stack of each forward operator. That is for finding the "
        "operator that made a NaN.",
        fix=FIXES["off"],
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Lost to it", cost_ns, lost.window_ns),
            Evidence("Nodes that look for NaN", number(mode.checked), (f"of {mode.nodes:,}",)),
            Evidence("Host's time in it", duration(spans.total)),
        ],
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=_removable(facts, spans),
        leads=True,
    )


def _part_of_it(facts: Facts, lost: Lost) -> Bool:
    """Mask of the lost time inside the mode's own events, and of idle time after a wait inside them."""
    inside = facts.host_work.anomaly_mode.inside
    chosen = (lost.event != NONE) & inside[lost.event]
    if facts.device is not None:
        waited = facts.gpu.ledger.gaps.blocked_in[lost.gap]
        chosen |= (lost.drained_ns > 0) & (waited != NONE) & inside[waited]
    return chosen


def _removable(facts: Facts, spans: Intervals) -> Removable:
    blocking = facts.host_time.blocking
    waits = tuple(blocking[facts.host_work.anomaly_mode.inside[blocking]].tolist())
    dropped = tuple(calls_in(facts.host, spans).tolist())
    without = Removal(spans, unblocked=waits, dropped=dropped)
    if facts.recorded.stacks:
        return Removable(without)
    everything = replace(without, host=merged(spans, facts.host_work.anomaly_mode.forward))
    return Removable(everything, least=without, beyond=_STACKS)


RULE = Rule("GD107", "anomaly_mode", "Anomaly mode", check, error_share=ERROR_SHARE, topic="mode")
