"""A Comparison as the document that text, Markdown and HTML show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from tb_gpudiag.digest.digest import PATH_SEPARATOR, REST
from tb_gpudiag.jobs.compare.promise import promised_range
from tb_gpudiag.jobs.step_parts import part_term, signed_ns
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import code_place, preposition
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Section, Table, lines, table
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import cut_middle, figures, one_line, share, size_bytes, time_us
from tb_gpudiag.wording.quantity import Quantity, duration
from tb_gpudiag.wording.vocabulary import MEMORY_FIGURES, MEMORY_KINDS, term

ROWS_SHOWN: Final = 10
"""Rows of kernels and of operators. The Comparison has more."""

_LONGEST: Final = 60
_MOST_CHANGED: Final = 2  # words of a title that differ: its figures
_JOIN: Final = " + "
_PARAMETERS: Final = lazy_re(r"(?<![\s:<,])\((?!anonymous namespace\)).*", re.S)
_SAME_IN_MOST: Final = lazy_re(
    r"\b(?:at::native|std|c10)::|\(anonymous namespace\)::|, std::array<char\*, \d+ul> ?"
)

_PROMISE: Final = {"INSIDE": "right", "BELOW": "too high", "ABOVE": "too low", "CANNOT_TELL": "cannot tell"}

_SIDES: Final = (Column("Base", Kind.NUMBER), Column("Candidate", Kind.NUMBER))
_DIFFERENCE: Final = Column("Difference", Kind.NUMBER)


def comparison_document(comparison: pb.Comparison, *, of_finding: bool = False) -> Document:
    """of_finding: the verdict begins with what became of the findings in `verified`."""
    became = [row.sentence for row in comparison.verified] if of_finding else []
    # Memory at the peak by kind and place, what differs most.
    shown = [
        (
            row.device,
            term(MEMORY_KINDS, pb.MemoryKind.Kind.Name(row.kind)).word,
            *_both(row.base_bytes, row.candidate_bytes, size_bytes),
            f" {preposition(row.place)} ".join(
                filter(None, (_short(row.allocator), code_place(row.place, row.base_place)))
            )
            or REST,
        )
        for row in list(comparison.held)[:ROWS_SHOWN]
    ]
    columns = (Column("Memory of"), Column("Kind"), *_SIDES, _DIFFERENCE, Column("Allocated by", Kind.CODE))
    sections: list[Section] = [
        _parts(comparison.causes, comparison.mean_step_us),
        _figures(comparison),
        table("held", "Memory at the peak that changed most", columns, shown),
        _findings(comparison.findings),
        _promises(comparison.verified),
        _work("modules", "Modules whose GPU time changed most, per step", comparison.modules),
        _work("kernels", "GPU work that changed most, per step", comparison.kernels),
        _work(
            "operators", "Operators that changed most, self time on the host per step", comparison.operators
        ),
        lines("notes", "Notes", comparison.notes),
    ]
    view = ReportView(
        heading="Comparison",
        path=f"base: {comparison.base}",
        about=f"candidate: {comparison.candidate}",
        verdict=" ".join((*became, comparison.sentence)),
        sections=tuple(section for section in sections if section),
    )
    return Document(
        title=f"Comparison of {comparison.base} and {comparison.candidate}",
        reports=(view,),
        example=next(iter(_rules(comparison.findings)), ""),
    )


def _parts(causes: Iterable[pb.CauseDifference], mean: pb.StepDifference) -> Table:
    """Parts of the mean step. They add up to it."""
    rows = [
        (part_term(pb.CauseTime.Cause.Name(row.cause)).word, *_times(row.base_us, row.candidate_us))
        for row in causes
    ]
    if rows:
        rows.append(("Mean step", *_times(mean.base, mean.candidate)))
    return table("parts", "Where the difference went", (Column("Part"), *_SIDES, _DIFFERENCE), rows)


def _figures(comparison: pb.Comparison) -> Table:
    """Launches and memory."""
    launches = comparison.launches
    rows = []
    if launches.base or launches.candidate:
        rows.append(("Launches per step", *_both(launches.base, launches.candidate, figures)))
    if comparison.HasField("mfu"):
        rows.append(_mfu(comparison.mfu))
    for row in comparison.memory:
        name = f"{row.device}: {term(MEMORY_FIGURES, row.what).noun}"
        rows.append((name, *_both(row.base_bytes, row.candidate_bytes, size_bytes)))
    title = "Launches, MFU and memory" if comparison.HasField("mfu") else "Launches and memory"
    return table("figures", title, (Column("Figure"), *_SIDES, _DIFFERENCE), rows)


def _both(base: float, candidate: float, shown: Callable[[float], str]) -> tuple[str, str, str]:
    """Both sides, and their difference."""
    return shown(base), shown(candidate), _signed(candidate - base, shown)


def _signed(moved: float, shown: Callable[[float], str]) -> str:
    return f"+{shown(moved)}" if moved > 0 else shown(moved)


def _times(base_us: float, candidate_us: float) -> tuple[Quantity, Quantity, str]:
    return duration(base_us * 1e3), duration(candidate_us * 1e3), signed_ns((candidate_us - base_us) * 1e3)


def _mfu(found: pb.MfuDifference) -> tuple[str, str, str, str]:
    moved = _signed(100 * (found.candidate - found.base), figures)
    of = " → ".join(dict.fromkeys((found.base_of, found.candidate_of)))
    return f"MFU, of {of}", share(found.base), share(found.candidate), f"{moved} points"


def _findings(findings: pb.FindingsDifference) -> Table:
    rows = [
        *((_rule(found), "gone", one_line(found.title)) for found in findings.gone),
        *((_rule(found), "new", one_line(found.title)) for found in findings.new),
        *((_rule(pair.base), "changed", _changed(pair)) for pair in findings.changed),
    ]
    columns = (Column("Finding"), Column("Is"), Column("Title", Kind.SENTENCE))
    return table("findings", "Findings", columns, rows)


def _changed(pair: pb.FindingChange) -> str:
    """`Copies take 12.6% → 25.8% of the time`; where more than figures changed, one title after the other."""
    base, candidate = one_line(pair.base.title), one_line(pair.candidate.title)
    words = list(zip(base.split(), candidate.split(), strict=False))
    same = len(base.split()) == len(candidate.split()) and sum(a != b for a, b in words) <= _MOST_CHANGED
    return " ".join(" → ".join(dict.fromkeys(word)) for word in (words if same else [(base, candidate)]))


def _rule(found: pb.Finding | pb.Verified) -> str:
    return one_line(f"{found.rule} {found.name}")


def _rules(findings: pb.FindingsDifference) -> Iterable[str]:
    yield from (found.rule for found in findings.new)
    yield from (found.rule for found in findings.gone)
    yield from (pair.candidate.rule for pair in findings.changed)


def _promises(verified: Iterable[pb.Verified]) -> Table:
    """Estimated savings of what was fixed. The measured saving is that of all fixes together."""
    rows = [
        (
            _rule(row),
            promised_range(row.low_us, row.likely_us, row.high_us),
            time_us(row.real_us) if row.real_low_us < row.real_high_us else "",
            _PROMISE[pb.Verified.Promise.Name(row.promise)],
        )
        for row in verified
        if row.promise != pb.Verified.NONE
    ]
    title = "Estimated and measured saving, per step"
    if len(rows) > 1:
        title += " (measured: of all fixes together)"
    columns = (
        Column("Fixed"),
        Column("Estimated", Kind.NUMBER),
        Column("Measured", Kind.NUMBER),
        Column("The estimate was"),
    )
    return table("promised", title, columns, rows)


def _work(id: str, title: str, rows: Iterable[pb.OperatorDifference]) -> Table:
    changed = [
        row for row in rows if row.candidate_us != row.base_us or row.candidate_count != row.base_count
    ]
    shown = [
        (
            f"{_short(row.name)} → {_short(row.candidate_name)}" if row.candidate_name else _short(row.name),
            *_times(row.base_us, row.candidate_us),
            _calls(row),
            _inside(row),
        )
        for row in changed[:ROWS_SHOWN]
    ]
    columns = (
        Column("Name", Kind.NAME),
        *_SIDES,
        _DIFFERENCE,
        Column("Calls", Kind.NUMBER),
        Column("Inside", Kind.NAME),
    )
    return table(id, title, columns, shown)


def _inside(row: pb.OperatorDifference) -> str:
    """What it is called by, unless that is itself."""
    inside = row.path.rpartition(PATH_SEPARATOR)[2]
    return inside * (inside != row.name)


def _short(names: str) -> str:
    """Names of kernels without what most kernels of PyTorch have in theirs, bounded."""
    return _JOIN.join(
        cut_middle(one_line(_SAME_IN_MOST.sub("", _PARAMETERS.sub("", name).removeprefix("void "))), _LONGEST)
        for name in names.split(_JOIN)
    )


def _calls(row: pb.OperatorDifference) -> str:
    base, candidate = figures(row.base_count), figures(row.candidate_count)
    return base if base == candidate else f"{base} → {candidate}"
