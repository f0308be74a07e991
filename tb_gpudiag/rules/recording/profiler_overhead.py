"""GD908: the profiler itself takes a notable part of the step window."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.recording import Recorded
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.unslowed import Unslowed
from tb_gpudiag.facts.waiting.host_lead import HostLead
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.launch_advice import launch_advice
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.rules.shared.recording_advice import PROFILER_URL, record_again
from tb_gpudiag.rules.shared.slowed_recording import (
    estimate,
    host_likely_limits,
    host_may_keep_up,
    lost_lead,
    measure,
    slowed_sentences,
    unslowed,
)
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_sentence, share, time_ns
from tb_gpudiag.wording.good_recording import RECORDING_FOR_FIGURES
from tb_gpudiag.wording.quantity import duration, number, share_of

CODE = fix_code(__name__)

# The thresholds of most rules are 5% of the step window, so overhead of that size can make or hide a finding.
# Most public traces with every option on are below 3%.
LEAST_SHARE = levels.NOTICEABLE

# One stretch with half of it is the recorder's beginning or a buffer, which fewer options do not shorten.
AT_ONCE = levels.HALF


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find a host that recording slows, and sum the GPU's idle time with cause `profiler`; without a GPU, the
    main thread's time."""
    if host_may_keep_up(facts):
        return _slowed(facts)
    lost = lost_time(facts)
    chosen = lost.of(Cause.PROFILER)
    overhead_ns = lost.total_ns(chosen)
    if lost.share(overhead_ns) < LEAST_SHARE:
        if not (facts.recorded.stacks or facts.recorded.overhead):
            return CannotTell(
                "the trace has neither Python stacks nor the GPU tracer's own events",
                "Record a second trace with with_stack=True, and compare the step times of the two.",
            )
        return Clear(f"the profiler itself took {share(overhead_ns, lost.window_ns)} of the step window")
    stretches = lost.stretches(chosen)
    longest_ns = int((stretches.end - stretches.start).max())
    mostly = lost.share(overhead_ns) >= levels.HALF
    who = "the GPU is idle" if facts.device else "the main thread is busy"
    return Finding(
        title=f"The profiler itself takes {share(overhead_ns, lost.window_ns)} of the step window",
        summary=(
            f"For {duration(overhead_ns)} {who} because of the recording: entering and leaving "
            "annotations, starting and stopping, allocating trace buffers. Without the profiler the job is "
            "about that much faster. Other findings about the host look larger than they are."
        ),
        fix=record_again("Record more steps, after a warm-up.")
        if mostly or longest_ns >= AT_ONCE * overhead_ns
        else Fix(
            "Record with fewer of with_stack, record_shapes and profile_memory, and take the figures from "
            "that recording. Take the functions from this one.",
            RECORDING_FOR_FIGURES,
            PROFILER_URL,
        ),
        evidence=[
            Evidence.of_window("Profiler overhead", overhead_ns, lost.window_ns),
            Evidence("Options turned on", _options(facts.recorded)),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        leads=mostly,
        severity=Severity.WARNING.when(mostly),
    )


def _slowed(facts: Facts) -> Finding:
    lead, estimated = lost_lead(facts), unslowed(facts)
    if lead is not None:
        title = f", which began {time_ns(lead.lead_ns)} ahead of the GPU and fell behind"
        why = (
            "Without the profiler it must have launched faster than the GPU works: otherwise it could not "
            "have been ahead. "
        )
    else:
        assert estimated is not None
        title, why = f": {estimate(facts, estimated)}", ""
    return Finding(
        title=f"The recording itself probably slows the host{title}",
        summary=f"{slowed_sentences(facts)[0]} {why}Findings about the host may be the profiler's own.",
        fix=Fix(f"{measure(facts)}{_if_the_host_limits(facts)}", CODE["measure"], PROFILER_URL),
        evidence=[
            *(_lead_evidence(lead) if lead else []),
            *(_estimate(facts, estimated) if estimated else []),
        ],
        severity=Severity.WARNING,
        leads=True,
    )


def _if_the_host_limits(facts: Facts) -> str:
    """What to do if it turns out to be so, which is likely; "" if it is not."""
    if not host_likely_limits(facts):
        return ""
    lost = lost_time(facts)
    if lost.total_ns(lost.issuing) < lost.total_ns(lost.of(*BETWEEN_CALLS)):
        return " If it does, do less in Python between launches."
    return f" If it does: {in_sentence(launch_advice(facts, lost, lost.issuing).fix_text)}"


def _lead_evidence(lead: HostLead) -> list[Evidence]:
    return [
        Evidence(
            "Ahead of the GPU in the first step",
            duration(lead.lead_ns),
            (share_of(lead.lead_ns, lead.step_ns, "of a step"),),
        ),
        Evidence("Ahead in later steps", duration(lead.later_ns)),
        Evidence("GPU waiting for the host in later steps", share_of(lead.starved_share, 1, "of a step")),
        Evidence("Recorded step", duration(lead.step_ns)),
    ]


def _estimate(facts: Facts, found: Unslowed) -> list[Evidence]:
    window, cost = facts.window, facts.host_work.recorder_cost
    whole = Intervals(np.array([window.start_ns]), np.array([window.end_ns]))
    return [
        Evidence("Step window", duration(found.recorded_ns, "as recorded")),
        Evidence(
            "Without the recorder, estimated",
            duration(found.least_ns, "at least"),
            (duration(found.most_ns, "at most"),),
        ),
        Evidence(
            "Recorded on the host",
            number(cost.operators(whole), "operator"),
            (number(cost.frames(whole), "Python frame"),),
        ),
    ]


def _options(recorded: Recorded) -> str:
    options = {
        "with_stack": recorded.stacks,
        "record_shapes": recorded.shapes,
        "profile_memory": recorded.memory,
        "with_flops": recorded.flops,
    }
    return ", ".join(name for name, on in options.items() if on) or "none"


RULE = Rule("GD908", "profiler_overhead", "Profiler overhead", check, severity=Severity.INFO)
