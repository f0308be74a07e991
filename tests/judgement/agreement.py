"""Compare verdicts with labels that were read off the raw JSON: see README.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_file
from tb_gpudiag.trace.find import find_traces

LABELS = Path(__file__).with_name("labels.json")


@dataclass(frozen=True)
class Label:
    """What the raw JSON of one recording supports."""

    folder: str
    verdicts: list[str]  # acceptable limiters, the best one first
    busy_share: float | None  # of the steady window; None without a GPU
    advice: str
    held_out: bool


@dataclass(frozen=True)
class Judged:
    """A label and the report of its recording; of several files, the first one's."""

    label: Label
    report: pb.Report

    @property
    def agrees(self) -> bool:
        return self.report.verdict.limiter in self.label.verdicts

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
        return (
            f"{mark} {held:8} {label.folder:32} {verdicts} busy {busy}\n"
            f"{'':17} says:  {finding}\n{'':17} label: {label.advice}"
        )


def labels() -> list[Label]:
    """Read all labels."""
    return [
        Label(folder, found["verdict"], found["busy_share"], found["advice"], found["held_out"])
        for folder, found in json.loads(LABELS.read_text(encoding="utf-8")).items()
    ]


def judge_all(traces: Path) -> Iterator[Judged]:
    """Diagnose each labelled recording below the folder of real traces."""
    for label in labels():
        file = find_traces(str(traces / label.folder)).files[0]
        yield Judged(label, diagnose_file(file))


def agreement(judged: list[Judged]) -> float:
    """Share of verdicts that agree with their labels."""
    return sum(one.agrees for one in judged) / len(judged)
