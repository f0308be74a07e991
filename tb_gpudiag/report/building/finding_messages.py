"""Answers of the rules: findings, the order in which to fix them, and rules without a finding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import message_of, place, us
from tb_gpudiag.rules.answer import Evidence, Saving
from tb_gpudiag.rules.outcome import Outcome, RuleFinding
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.quantity import Quantity

if TYPE_CHECKING:
    from tb_gpudiag.facts.replay.replay import Replay

RANGES_LIMIT = 100
PLACES_LIMIT = 20
CODE_LIMIT = 4_000
SENTENCES_LIMIT = 2_000


@dataclass(frozen=True)
class Whole:
    """What savings are shares of: the step window and a step (0 without steps), both as recorded, and how
    much of each is left without the profiler."""

    window_ns: int
    step_ns: float = 0.0
    unprofiled_share: float = 1.0


def finding_message(found: RuleFinding, whole: Whole) -> pb.Finding:
    """One finding."""
    rule, finding = found.rule, found.finding
    about_memory = finding.cost_bytes or finding.cost_bytes_per_step
    # Line by line, because one_line replaces line breaks.
    code = "\n".join(one_line(line) for line in finding.fix.code[:CODE_LIMIT].split("\n"))
    longest_first = sorted(finding.ranges, key=lambda r: r.start_ns - r.end_ns)
    return pb.Finding(
        rule=rule.id,
        name=f"{rule.name}/{finding.case}" if finding.case else rule.name,
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
        fix=pb.Fix(
            text=one_line(finding.fix.text, SENTENCES_LIMIT), code=code, url=one_line(finding.fix.url)
        ),
        ranges=[
            pb.TimeRange(start_us=us(r.start_ns), end_us=us(r.end_ns), device=r.device)
            for r in longest_first[:RANGES_LIMIT]
        ],
        saving=_saving(finding.saving, whole) if finding.saving else None,
    )


def _evidence(evidence: Evidence) -> pb.Evidence:
    message = pb.Evidence(label=one_line(evidence.label), value=one_line(evidence.text))
    value = evidence.value
    if isinstance(value, Quantity) and math.isfinite(value.value):
        message.number, message.unit = value.value, value.unit.value
    return message


def _saving(saving: Saving, whole: Whole) -> pb.Saving:
    message = pb.Saving(
        basis=saving.basis,
        beyond=saving.beyond,
        least_possible_share=saving.possible[0],
        possible_share=saving.possible[1],
        pairs=saving.pairs,
    )
    put_saving(message, (saving.low_ns, saving.likely_ns, saving.high_ns), whole)
    return message


def put_saving(message: pb.Saving, saved_ns: tuple[float, float, float], whole: Whole) -> None:
    """Put low end, most likely value and high end into the message: a fix saves the same share of a step and
    of the step window, with the profiler and without it. saved_ns: over the recorded step window."""
    for name, ns in zip(("low", "likely", "high"), saved_ns, strict=True):
        share = ns / max(1, whole.window_ns)
        setattr(message, f"{name}_us", us(ns * whole.unprofiled_share))
        setattr(message, f"{name}_share", share)
        setattr(message, f"{name}_per_step_us", us(share * whole.step_ns * whole.unprofiled_share))


def plan_message(outcome: Outcome, whole: Whole, replay: Replay) -> pb.Plan:
    """Fixes in the order to make them, with times of a step, or of the step window without steps."""
    rules = [found.rule for found in outcome.findings]
    unit = (whole.step_ns or whole.window_ns) * whole.unprofiled_share / max(1, whole.window_ns)

    def left_us(saved_ns: int) -> float:
        return us((whole.window_ns - saved_ns) * unit)

    return pb.Plan(
        fixes=[
            pb.PlannedFix(
                finding=planned.finding,
                rule=rules[planned.finding].id,
                name=rules[planned.finding].name,
                saving_us=us(planned.saving_ns * unit),
                least_us=left_us(planned.high_ns),
                likely_us=left_us(planned.likely_ns),
                most_us=left_us(planned.low_ns),
            )
            for planned in outcome.plan
        ],
        whole_us=left_us(0),
        error_share=replay.error,
        per_step=whole.step_ns > 0,
    )


def unchecked_messages(outcome: Outcome) -> list[pb.Unchecked]:
    """Rules that could not check."""
    return [
        message_of(pb.Unchecked, answer, rule=rule.id, name=rule.name) for rule, answer in outcome.unchecked
    ]


def clear_messages(outcome: Outcome) -> list[pb.Clear]:
    """Rules that checked and found no problem."""
    return [message_of(pb.Clear, clear, rule=rule.id, name=rule.name) for rule, clear in outcome.clear]
