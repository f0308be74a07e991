"""What is said of each recording, one line a recording: see README.md."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import size_bytes

HERE = Path(__file__).parent
WRITING = bool(os.environ.get("GPUDIAG_WRITE_GOLDEN"))


def answer(report: pb.Report) -> str:
    """Return the limiter and the loud findings, each with its rule, cost, place and saving. Times are shares
    of the step window with two digits."""
    limiter = pb.Verdict.Limiter.Name(report.verdict.limiter)
    window_us = (
        report.devices[0].window_us if report.devices else sum(step.duration_us for step in report.steps)
    )
    loud = [_said(finding, window_us) for finding in report.findings if finding.severity > pb.Finding.INFO]
    return "\t".join([limiter, "; ".join(loud) or "-"])


def _said(finding: pb.Finding, window_us: float) -> str:
    rule = finding.rule + "!" * (finding.severity == pb.Finding.ERROR)
    costs = [
        _percent(finding.cost_us / window_us) if finding.cost_us and window_us else "",
        size_bytes(finding.cost_bytes) if finding.cost_bytes else "",
        f"{size_bytes(finding.cost_bytes_per_step)} a step" if finding.cost_bytes_per_step else "",
    ]
    saving = finding.saving
    saves = (
        f"saves {_percent(saving.low_share)} to {_percent(saving.high_share)}"
        if finding.HasField("saving")
        else ""
    )
    place = _place(finding.places[0]) if finding.places else ""
    return " ".join(filter(None, [rule, *costs, place and f"at {place}", saves]))


def _place(place: pb.Place) -> str:
    file = PurePath(place.file.replace("\\", "/")).name
    return " ".join(filter(None, [f"{file}:{place.line}" if file else "", place.function or place.operator]))


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


class Table:
    """A table of answers: `name<TAB>limiter<TAB>loud findings`, in order of name."""

    def __init__(self, name: str) -> None:
        self._path = HERE / name
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        self._rows = dict(line.split("\t", 1) for line in lines)

    @property
    def names(self) -> set[str]:
        return set(self._rows)

    def gist(self, name: str) -> tuple[str, str]:
        """Return the limiter and the rule of the first loud finding, or "-"."""
        limiter, loud = self._rows[name].split("\t")
        return limiter, loud.split(" ")[0].strip("!;")

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove what was said of recordings that are gone, if the table is written."""
        if WRITING:
            self._rows = {name: row for name, row in self._rows.items() if name in set(names)}

    def compare(self, name: str, said: str) -> None:
        """Fail if the table says something else of a recording. With GPUDIAG_WRITE_GOLDEN, write it."""
        if WRITING:
            self._rows[name] = said
            lines = sorted(f"{name}\t{row}\n" for name, row in self._rows.items())
            self._path.write_text("".join(lines), encoding="utf-8")
        was = self._rows.get(name, "not in the table")
        assert said == was, f"{name}: see README.md\n  was {_shown(was)}\n  now {_shown(said)}"


def _shown(row: str) -> str:
    return row.replace("\t", ": ").replace("; ", "\n      ")
