"""Verify a fix: what the rows of a Comparison say about the finding that it was made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.digest.digest import WORK
from tb_gpudiag.errors import UsageError
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import count, one_line

_FIXED: Final = (pb.Verified.GONE, pb.Verified.LESS)
_NEW_SHOWN: Final = 5

ABOUT_RECORDING: Final = "GD9"
"""First characters of the ids of rules about the recording."""


def verify(comparison: pb.Comparison, finding: str = "", where: str = "") -> pb.Verification:
    """Verify the fix of a finding of the base: a rule's id or name; by default, of its first finding.

    where: the base, for the error.

    Raises:
        UsageError: the base has no such finding, or there is no such rule.
    """
    rows = list(comparison.verified)
    rule = _rule(finding) if finding else _first(rows)
    own = [row for row in rows if row.rule == rule]
    if finding and not own:
        there = ", ".join(dict.fromkeys(row.rule for row in rows))
        raise UsageError(
            f"this recording has no finding {rule}",
            where=where,
            remedy=f"its findings are {there}" if there else "it has none",
        )
    others = [row for row in rows if row.rule != rule]
    # Findings near their thresholds come and go between recordings of equal code.
    faster = comparison.verdict == pb.Comparison.FASTER
    fixed = [row for row in others if _is_fixed(row) and (faster or not (row.cost_us or row.high_us))]
    made = _made(own, fixed)
    return pb.Verification(
        base=comparison.base,
        candidate=comparison.candidate,
        rule=rule,
        made=made,
        sentence=_sentence(made, own, fixed),
        findings=[*own, *others],
        verdict=comparison.verdict,
        step=comparison.sentence,
        mean_step_us=comparison.mean_step_us,
        causes=comparison.causes,
        new_findings=[
            one_line(f"{new.rule} {new.title}")
            for new in comparison.findings.new
            if new.severity != pb.Finding.INFO
        ][:_NEW_SHOWN],
        notes=[*comparison.notes, *_recorded(comparison)],
        how_to_tell=_how_to_tell(comparison, rows),
    )


def _rule(finding: str) -> str:
    rule = find_any_rule(finding)
    if rule is None:
        raise UsageError("there is no such rule", where=one_line(finding), remedy="such as GD101")
    return rule.id


def _first(rows: Sequence[pb.Verified]) -> str:
    """Return the rule whose finding about the job costs most, above a hint if there is one."""
    about_job = [row for row in rows if not row.rule.startswith(ABOUT_RECORDING)]
    return max(about_job, key=lambda row: (row.severity, row.cost_us)).rule if about_job else ""


def _is_fixed(row: pb.Verified) -> bool:
    return row.became in _FIXED and row.severity != pb.Finding.INFO


def _made(own: Sequence[pb.Verified], others: Sequence[pb.Verified]) -> pb.Verification.Made:
    """others: fixes of other findings."""
    became = {row.became for row in own}
    if became == {pb.Verified.GONE}:
        return pb.Verification.MADE
    if became & set(_FIXED):
        return pb.Verification.PARTLY
    if not own or pb.Verified.UNKNOWN in became:
        return pb.Verification.CANNOT_TELL
    return pb.Verification.ANOTHER if others else pb.Verification.NOT_MADE


def _sentence(made: pb.Verification.Made, own: Sequence[pb.Verified], others: Sequence[pb.Verified]) -> str:
    if not own:
        return "Cannot tell: the recording before has no finding about the job."
    said = _of(own)
    if made == pb.Verification.ANOTHER:
        return f"Another fix was made. {said} {_of(others)}"
    start = {
        pb.Verification.MADE: "The fix was made. ",
        pb.Verification.PARTLY: "A part of the fix was made. ",
        pb.Verification.NOT_MADE: "The fix was not made, or does not show. ",
        pb.Verification.CANNOT_TELL: "",
    }
    return f"{start[made]}{said}"


def _of(rows: Sequence[pb.Verified]) -> str:
    """What became of the first one, which promised most, and how many more there are."""
    more = f" (And {count(len(rows) - 1, 'more finding')}.)" if len(rows) > 1 else ""
    return f"{rows[0].sentence}{more}"


def _recorded(comparison: pb.Comparison) -> list[str]:
    """Say that a profiler slows down the host, if that is where most of the time was saved."""
    saved = {pb.CauseTime.Cause.Name(row.cause): row.base_us - row.candidate_us for row in comparison.causes}
    # Without launches, the host computes.
    launched = comparison.launches.base or comparison.launches.candidate
    on_gpu = sum(saved.get(part, 0.0) for part in WORK) if launched else 0.0
    if comparison.mean_step_us.difference >= 0 or on_gpu >= sum(saved.values()) / 2:
        return []
    return [
        "These are recorded steps. A profiler slows down the host, so a fix saves less there without it: "
        "time some steps without it to know."
    ]


def _how_to_tell(comparison: pb.Comparison, rows: Sequence[pb.Verified]) -> list[str]:
    """How to record both sides where something cannot be told."""
    untold = any(row.promise == pb.Verified.CANNOT_TELL for row in rows)
    unknown = any(row.became == pb.Verified.UNKNOWN for row in rows)
    found = []
    if comparison.verdict == pb.Comparison.CANNOT_TELL:
        found.append(
            "Record the job before and after the fix on the same machine, with the same inputs and the same "
            "settings of the profiler, and five steady steps or more: prof.step() after each step."
        )
        found.append("Record each side twice, by turns, into one directory each: then the noise is known.")
    if unknown and not found:
        found.append("Record what the rules need that could not check the candidate.")
    if untold and comparison.verdict != pb.Comparison.CANNOT_TELL:
        found.append("Make one fix at a time, and record after each: then each saving is known.")
    return found
