"""A comparison as JUnit's XML: one test case per condition of --fail-on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import one_line

LONGEST_TEXT = 1_000


@dataclass(frozen=True)
class Condition:
    """A condition of --fail-on, and the reason why it is met; empty if it is not.

    skipped: why it does not apply.
    """

    name: str
    met: str
    skipped: str = ""


def junit(comparison: pb.Comparison, conditions: Sequence[Condition]) -> str:
    """Return a test suite with a case for each condition."""
    suite = ElementTree.Element(
        "testsuite",
        name="gpudiag compare",
        tests=str(len(conditions)),
        failures=str(sum(bool(one.met) for one in conditions)),
        errors="0",
        skipped=str(sum(bool(one.skipped) for one in conditions)),
    )
    for one in conditions:
        case = ElementTree.SubElement(suite, "testcase", classname="gpudiag.compare", name=one.name)
        if one.met:
            first, _, _ = one.met.partition("\n")
            failure = ElementTree.SubElement(case, "failure", message=_text(first), type=one.name)
            failure.text = _lines(one.met)
        elif one.skipped:
            ElementTree.SubElement(case, "skipped", message=_text(one.skipped))
    sentence = f"{comparison.base} → {comparison.candidate}: {comparison.sentence}"
    ElementTree.SubElement(suite, "system-out").text = _text(sentence)
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _lines(text: str) -> str:
    return "\n".join(map(_text, text.split("\n")))


def _text(text: str) -> str:
    """XML has no control characters."""
    return one_line(text, LONGEST_TEXT)
