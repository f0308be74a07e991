"""`gpudiag compare BASE CANDIDATE`: is the candidate faster, and where did the difference go?"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from xml.etree import ElementTree

from tb_gpudiag.cli.digest import read_sides
from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.inputs import add_engine_options, add_sides
from tb_gpudiag.cli.output import DEFECT, tell
from tb_gpudiag.errors import UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.jobs.compare.promise import about_finding
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.wording.format import one_line

_NEW_FINDINGS = "new-findings"
_SLOWER = "slower"
_LONGEST_TEXT = 1_000


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 1 if a --fail-on condition is met, 2 if a side was not read, 3 after a bug.

    Raises NothingToRead, and UsageError, also if the base lacks the finding.
    """
    parsed = parser().parse_args(arguments)
    slower, new_findings = _conditions(parsed.fail_on)
    sides, met_a_bug = read_sides([parsed.base, parsed.candidate], parsed)
    if sides is None:
        return DEFECT if met_a_bug else 2
    comparison = compare(*sides)
    if parsed.finding:
        comparison = about_finding(comparison, parsed.finding, parsed.base)
    write(
        parsed,
        lambda: comparison_document(comparison, of_finding=bool(parsed.finding)),
        lambda: {"comparison": to_dict(comparison)},
        more={"junit": lambda: junit(comparison, _cases(comparison, slower, new_findings))},
    )
    if slower is not None and comparison.verdict == pb.Comparison.CANNOT_TELL:
        tell(f"--fail-on slower does not apply. {comparison.sentence}")
    return 1 if _is_slower(comparison, slower) or (new_findings and comparison.findings.new) else 0


def _is_slower(comparison: pb.Comparison, percent: float | None) -> bool:
    if percent is None or comparison.verdict != pb.Comparison.SLOWER:
        return False
    # The verdict rests on one of them.
    steps = (comparison.step_us, comparison.mean_step_us)
    return any(step.difference >= percent / 100 * step.base for step in steps)


def _cases(comparison: pb.Comparison, slower: float | None, new_findings: bool) -> list[JUnitCase]:
    """Return the conditions as test cases; without any, both."""
    cases = []
    if slower is not None or not new_findings:
        percent = slower or 0.0
        cases.append(
            JUnitCase(
                f"{_SLOWER}:{percent:g}" if percent else _SLOWER,
                comparison.sentence if _is_slower(comparison, percent) else "",
                comparison.sentence if comparison.verdict == pb.Comparison.CANNOT_TELL else "",
            )
        )
    if new_findings or slower is None:
        found = [f"{finding.rule} {finding.title}" for finding in comparison.findings.new]
        cases.append(JUnitCase(_NEW_FINDINGS, "\n".join(found)))
    return cases


@dataclass(frozen=True)
class JUnitCase:
    """A condition of --fail-on as a test case."""

    name: str
    met: str  # why the condition is met; "" if it is not
    skipped: str = ""  # why it does not apply


def junit(comparison: pb.Comparison, cases: Sequence[JUnitCase]) -> str:
    """Return JUnit's XML: a test suite with these cases."""
    suite = ElementTree.Element(
        "testsuite",
        name="gpudiag compare",
        tests=str(len(cases)),
        failures=str(sum(bool(one.met) for one in cases)),
        errors="0",
        skipped=str(sum(bool(one.skipped) for one in cases)),
    )
    for one in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="gpudiag.compare", name=one.name)
        if one.met:
            first, _, _ = one.met.partition("\n")
            failure = ElementTree.SubElement(case, "failure", message=_text(first), type=one.name)
            failure.text = "\n".join(map(_text, one.met.split("\n")))
        elif one.skipped:
            ElementTree.SubElement(case, "skipped", message=_text(one.skipped))
    sentence = f"{comparison.base} → {comparison.candidate}: {comparison.sentence}"
    ElementTree.SubElement(suite, "system-out").text = _text(sentence)
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _text(text: str) -> str:
    """Return the text without control characters, which XML does not have."""
    return one_line(text, _LONGEST_TEXT)


def _conditions(values: Sequence[str]) -> tuple[float | None, bool]:
    """Return the percentage of `slower`, or None, and whether new findings fail."""
    percent: float | None = None
    new_findings = False
    for value in (part for each in values for part in each.split(",") if part):
        name, colon, number = value.partition(":")
        if value == _NEW_FINDINGS:
            new_findings = True
        elif name == _SLOWER:
            percent = _percent(number, value) if colon else 0.0
        else:
            raise _bad_condition(value)
    return percent, new_findings


def _percent(number: str, value: str) -> float:
    try:
        percent = float(number)
    except ValueError:
        raise _bad_condition(value) from None
    if not math.isfinite(percent) or percent < 0:
        raise _bad_condition(value)
    return percent


def _bad_condition(value: str) -> UsageError:
    return UsageError(
        "--fail-on takes slower, slower:PERCENT and new-findings", where=value, remedy="such as slower:5"
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag compare",
        description="Compare two traces, or two jobs with a trace per rank: which is faster, where did the "
        "difference go, and what became of the findings?",
        epilog="Exit status: 0 success, 1 a --fail-on condition is met, 2 invalid usage or a side cannot be "
        "read, 3 a bug in gpudiag.",
    )
    add_sides(made, "base", "candidate", "change")
    add_options(made, ("junit",))
    made.add_argument(
        "--finding",
        metavar="RULE",
        default="",
        help="only what became of this finding of the base, such as GD101: is it gone, what did that give, "
        "and was it promised? Exit status 2 if the base lacks it",
    )
    made.add_argument(
        "--fail-on",
        metavar="CONDITION",
        action="append",
        default=[],
        help="exit with status 1 if the candidate is slower (slower), by a percentage or more (slower:5), or "
        "if it has findings that the base lacks (new-findings)",
    )
    add_engine_options(made)
    return made
