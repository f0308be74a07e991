"""What the views say of what repeats where no steps were recorded. Every figure is the Report's."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.sections import CAUSES
from tb_gpudiag.wording.format import count, share, time_us

PARTS_SHOWN = 4
"""Parts of the inferred steps' time, the largest ones."""

_SIGNS = {
    "module": "Each runs a call of its own of an outermost module, so each is taken for a step.",
    "input": "Each takes data from the host, so each is taken for a step.",
    "threads": "Each is launched by several host threads, as forward and backward are: it is taken for a "
    "step.",
    "one_call": "They all lie inside one call of {inside}: parts of a step, such as layers, and no steps.",
    "none": "Nothing in the trace tells whether one is a step or a part of one, such as a layer.",
}


def title(report: pb.Report) -> str:
    return "Inferred steps" if report.inferred_steps.are_steps else "Repetition"


def lines(report: pb.Report) -> list[str]:
    """What repeats where no steps were recorded, in sentences; empty where nothing does."""
    found = report.inferred_steps
    if not found.repetitions:
        return []
    lengths = [step.duration_us for step in found.steps]
    total_us = sum(lengths)
    parts: dict[str, float] = {}
    for one in found.accounts:
        for label, us in _parts(one.computing_us, one.copying_us, one.communicating_us, one.idle_by_cause):
            parts[label] = parts.get(label, 0.0) + us
    shares = [f"{label} {share(us, total_us)}" for label, us in sorted(parts.items(), key=lambda p: -p[1])]
    return [
        f"No steps were recorded. On GPU {found.device} a sequence of "
        f"{count(found.period_launches, 'launch', 'launches')} comes {count(found.repetitions, 'time')}, "
        f"after {time_us(found.setup_us)} of setup and before {time_us(found.tail_us)} of tail.",
        _SIGNS.get(found.sign, "").format(inside=found.inside),
        f"One takes {time_us(found.median_us)} (median; {time_us(min(lengths))} to {time_us(max(lengths))}). "
        f"All together: {', '.join(shares[:PARTS_SHOWN])}.",
    ]


def _parts(
    computing_us: float, copying_us: float, communicating_us: float, idle: Iterable[pb.CauseTime]
) -> list[tuple[str, float]]:
    return [
        ("computing", computing_us),
        ("copying", copying_us),
        ("communicating", communicating_us),
        *((f"idle: {CAUSES.get(c.cause, c.cause)}", c.us) for c in idle),
    ]
