"""A Comparison about one finding of the base: was it fixed, what did that give, and was it promised?"""

from __future__ import annotations

from typing import Final

from tb_gpudiag.digest.digest import WORK
from tb_gpudiag.errors import UsageError
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import one_line

_RECORDED: Final = (
    "These are recorded steps. A profiler slows down the host, so a fix saves less there without it: time "
    "some steps without it to know."
)


def about_finding(comparison: pb.Comparison, finding: str, where: str) -> pb.Comparison:
    """Return the comparison with what became of one rule's findings only, and a note if most of the time was
    saved on the host, which a profiler slows down.

    finding: id or name of the rule. where: the base, for the error.

    Raises:
        UsageError: the base has no such finding, or there is no such rule.
    """
    rule = find_any_rule(finding)
    if rule is None:
        raise UsageError("there is no such rule", where=one_line(finding), remedy="such as GD101")
    own = [row for row in comparison.verified if row.rule == rule.id]
    if not own:
        there = ", ".join(dict.fromkeys(row.rule for row in comparison.verified))
        raise UsageError(
            f"this recording has no finding {rule.id}",
            where=where,
            remedy=f"its findings are {there}" if there else "it has none",
        )
    found = pb.Comparison()
    found.CopyFrom(comparison)
    del found.verified[:]
    found.verified.extend(own)
    if _saved_on_the_host(comparison):
        found.notes.append(_RECORDED)
    return found


def _saved_on_the_host(comparison: pb.Comparison) -> bool:
    saved = {pb.CauseTime.Cause.Name(row.cause): row.base_us - row.candidate_us for row in comparison.causes}
    # Without launches, the host computes.
    launched = comparison.launches.base or comparison.launches.candidate
    on_gpu = sum(saved.get(part, 0.0) for part in WORK) if launched else 0.0
    return comparison.mean_step_us.difference < 0 and on_gpu < sum(saved.values()) / 2
