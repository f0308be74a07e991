"""Answers of the rules: findings, the order in which to fix them, and rules without a finding."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import message_of, place, us
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Saving
from tb_gpudiag.rules.outcome import Outcome, RuleFinding
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.quantity import Quantity

if TYPE_CHECKING:
    from tb_gpudiag.facts.replay.replay import Replay

RANGES_LIMIT = 100
PLACES_LIMIT = 20
CODE_LIMIT = 4_000
SENTENCES_LIMIT = 2_000


def finding_message(found: RuleFinding, window: Window, step_ns: float) -> pb.Finding:
    """One finding. step_ns: how long a step takes; 0 without steps."""
    rule, finding = found.rule, found.finding
    about_memory = finding.cost_bytes or finding.cost_bytes_per_step
    return pb.Finding(
        rule=rule.id,
        name=rule.name,
        severity=found.severity.name,
        title=one_line(finding.title),
        summary=one_line(finding.summary, SENTENCES_LIMIT),
        cost_us=us(finding.cost_ns),
        cost_bytes=finding.cost_bytes,
        cost_bytes_per_step=finding.cost_bytes_per_step,
        memory_device=finding.memory_device if about_memory else 0,
        certain=finding.sure,
        evidence=[_evidence(evidence) for evidence in finding.evidence],
        places=[place(where) for where in finding.places[:PLACES_LIMIT]],
        fix=_fix(finding.fix),
        ranges=_longest_ranges(finding),
        saving=_saving(finding.saving, window, step_ns) if finding.saving else None,
    )


def _evidence(evidence: Evidence) -> pb.Evidence:
    message = pb.Evidence(label=one_line(evidence.label), value=one_line(evidence.text))
    value = evidence.value
    if isinstance(value, Quantity) and math.isfinite(value.value):
        message.number, message.unit = value.value, value.unit.value
    return message


def _fix(fix: Fix) -> pb.Fix:
    # Line by line, because one_line replaces line breaks.
    code = "\n".join(one_line(line) for line in fix.code[:CODE_LIMIT].split("\n"))
    return pb.Fix(text=one_line(fix.text, SENTENCES_LIMIT), code=code, url=one_line(fix.url))


def _longest_ranges(finding: Finding) -> list[pb.TimeRange]:
    longest_first = sorted(finding.ranges, key=lambda r: r.start_ns - r.end_ns)
    return [
        pb.TimeRange(start_us=us(r.start_ns), end_us=us(r.end_ns), device=r.device)
        for r in longest_first[:RANGES_LIMIT]
    ]


def _saving(saving: Saving, window: Window, step_ns: float) -> pb.Saving:
    """Per step, a fix saves the same share as of the window."""
    window_ns = max(1, window.duration_ns)
    return pb.Saving(
        low_us=us(saving.low_ns),
        high_us=us(saving.high_ns),
        basis=saving.basis,
        low_share=saving.low_ns / window_ns,
        high_share=saving.high_ns / window_ns,
        low_per_step_us=us(saving.low_ns / window_ns * step_ns),
        high_per_step_us=us(saving.high_ns / window_ns * step_ns),
        beyond=saving.beyond,
    )


def plan_message(outcome: Outcome, window: Window, replay: Replay) -> pb.Plan:
    """Fixes in the order to make them."""
    rules = [found.rule for found in outcome.findings]
    savings = [outcome.findings[planned.finding].finding.saving for planned in outcome.plan]
    # What one fix saves for sure, another may save, too: the surest counts, not the sum.
    sure_ns = accumulate((saving.low_ns if saving else 0 for saving in savings), max)
    return pb.Plan(
        fixes=[
            pb.PlannedFix(
                finding=planned.finding,
                rule=rules[planned.finding].id,
                name=rules[planned.finding].name,
                saving_us=us(planned.saving_ns),
                window_us=us(planned.window_ns),
                most_window_us=us(max(planned.window_ns, window.duration_ns - sure)),
            )
            for planned, sure in zip(outcome.plan, sure_ns, strict=True)
        ],
        window_us=us(window.duration_ns),
        saving_us=us(sum(planned.saving_ns for planned in outcome.plan)),
        error_share=replay.error,
    )


def unchecked_messages(outcome: Outcome) -> list[pb.Unchecked]:
    """Rules that could not check."""
    return [
        message_of(pb.Unchecked, answer, rule=rule.id, name=rule.name) for rule, answer in outcome.unchecked
    ]


def clear_messages(outcome: Outcome) -> list[pb.Clear]:
    """Rules that checked and found no problem."""
    return [message_of(pb.Clear, clear, rule=rule.id, name=rule.name) for rule, clear in outcome.clear]
