"""Compare verdicts with labels that were read off the raw JSON: see README.md."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tb_gpudiag.report import report_pb2 as pb

LABELS = Path(__file__).with_name("labels.json")
ADVICE = Path(__file__).with_name("advice.json")

NONE_WORTH_FIXING = "none"
"""Instead of a rule id: no finding is worth a warning."""

PROMINENT = 2
"""Findings at the top of the page count as advice, whatever their severity."""


@dataclass(frozen=True)
class Forbidden:
    """Wrong advice: a finding of `rule` (empty: of any rule) whose text matches `says`."""

    rule: str
    says: re.Pattern[str]
    why: str

    def is_given_by(self, finding: pb.Finding) -> bool:
        """Whether this finding gives the wrong advice."""
        text = "\n".join([finding.title, finding.fix.text, finding.fix.code])
        return self.rule in {"", finding.rule} and self.says.search(text) is not None


@dataclass(frozen=True)
class Label:
    """What the raw JSON of one recording supports."""

    folder: str
    verdicts: list[str]  # acceptable limiters, the best one first
    busy_share: float | None  # of the steady window; None without a GPU
    advice: str
    first: list[str]  # rules whose finding may come first, or NONE_WORTH_FIXING
    forbidden: list[Forbidden]
    held_out: bool

    def __str__(self) -> str:
        return self.folder


@dataclass(frozen=True)
class Judged:
    """A label and the report of its recording; of several files, the first one's."""

    label: Label
    report: pb.Report

    @property
    def agrees(self) -> bool:
        return pb.Verdict.Limiter.Name(self.report.verdict.limiter) in self.label.verdicts

    @property
    def first_agrees(self) -> bool:
        """Whether the first finding gives the advice of the label, or a good beginning of it."""
        first = next(iter(self.report.findings), None)
        if NONE_WORTH_FIXING in self.label.first and (first is None or first.severity == pb.Finding.INFO):
            return True
        return first is not None and first.rule in self.label.first

    @cached_property
    def wrong_advice(self) -> list[str]:
        """Forbidden advice that the report gives where people read it."""
        return [
            f"{finding.rule}: {forbidden.why}"
            for i, finding in enumerate(self.report.findings)
            if i < PROMINENT or finding.severity != pb.Finding.INFO
            for forbidden in self.label.forbidden
            if forbidden.is_given_by(finding)
        ]

    @property
    def row(self) -> str:
        """One line of the table."""
        verdict, label = self.report.verdict, self.label
        busy = "" if label.busy_share is None else f"{verdict.busy_share:.2f} ({label.busy_share:.2f})"
        first = self.report.findings[0] if self.report.findings else None
        finding = f"{first.rule} {first.title}" if first is not None else "nothing to fix"
        mark = "agrees " if self.agrees else "DIFFERS"
        held = "held out" if label.held_out else ""
        verdicts = f"{verdict.limiter:14} ({', '.join(label.verdicts)})"
        said = "says:  " if self.first_agrees else "SAYS:  "
        lines = [
            f"{mark} {held:8} {label.folder:32} {verdicts} busy {busy}",
            f"{'':17} {said}{finding}",
            f"{'':17} label: {', '.join(label.first)}: {label.advice}",
            *(f"{'':17} WRONG: {wrong}" for wrong in self.wrong_advice),
        ]
        return "\n".join(lines)


def labels() -> list[Label]:
    """Read all labels."""
    advice = json.loads(ADVICE.read_text(encoding="utf-8"))
    return [
        Label(
            folder,
            found["verdict"],
            found["busy_share"],
            found["advice"],
            advice[folder]["first"],
            [
                Forbidden(one["rule"], re.compile(one["says"], re.IGNORECASE), one["why"])
                for one in advice[folder]["forbidden"]
            ],
            found["held_out"],
        )
        for folder, found in json.loads(LABELS.read_text(encoding="utf-8")).items()
    ]
