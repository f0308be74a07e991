"""Where each device's step window went, and steps inferred from repetition."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Account, Lines, Part, lines
from tb_gpudiag.wording.format import count, share, time_us
from tb_gpudiag.wording.kinds import STEP_SIGNS
from tb_gpudiag.wording.term import term
from tb_gpudiag.wording.vocabulary import CAUSES, WORK_PARTS

INFERRED_PARTS_SHOWN = 4
"""Parts of the repetitions' time that are listed, largest first."""

NS_US = 1e-3
"""Times on the wire are exact to a nanosecond."""


def accounts(report: pb.Report) -> list[Account]:
    """One account per device, busiest first. Parts without time are left out."""
    return [_account(device, _window(report, device)) for device in report.devices]


def _window(report: pb.Report, device: pb.Device) -> str:
    if report.steps:
        steady, recorded = len(device.step_accounts), count(len(report.steps), "step")
        return f"{count(steady)} of {recorded}" if 0 < steady < len(report.steps) else recorded
    whole = device.window_us >= report.trace.duration_us - NS_US
    return "the whole recording" if whole else "the steady part of the recording"


def _account(device: pb.Device, window: str) -> Account:
    name = f"GPU {device.id}" + (f", {device.name}" if device.name else "")
    parts = _parts(
        device.window_computing_us,
        device.window_copying_us,
        device.window_communicating_us,
        device.window_idle_by_cause,
    )
    shown = tuple(part for part in parts if part.us > 0 and device.window_us > 0)
    return Account(f"gpu{device.id}", f"{name}: {window}", shown, device.window_us)


def _parts(
    computing_us: float, copying_us: float, communicating_us: float, idle: Iterable[pb.CauseTime]
) -> list[Part]:
    return [
        Part("computing", WORK_PARTS["computing"].noun, computing_us),
        Part("copying", WORK_PARTS["copying"].noun, copying_us),
        Part("communicating", WORK_PARTS["communicating"].noun, communicating_us),
        *(
            Part(cause, f"idle: {term(CAUSES, cause).noun}", us)
            for cause, us in ((pb.CauseTime.Cause.Name(part.cause), part.us) for part in idle)
        ),
    ]


def inferred_steps(report: pb.Report) -> Lines:
    """Repetition in a trace without recorded steps. Empty if nothing repeats."""
    found = report.inferred_steps
    title = "Inferred steps" if found.are_steps else "Repetition"
    if not found.repetitions:
        return lines("inferred_steps", title, [])
    launches = count(found.period_launches, "launch", "launches")
    lengths = [step.duration_us for step in found.accounts]
    shortest, longest = time_us(min(lengths)), time_us(max(lengths))
    sentences = [
        f"No steps were recorded. On GPU {found.device} a sequence of {launches} repeats "
        f"{count(found.repetitions, 'time')}, after {time_us(found.setup_us)} of setup and before "
        f"{time_us(found.tail_us)} of other work.",
        STEP_SIGNS[pb.InferredSteps.Sign.Name(found.sign)].explanation.format(inside=found.inside),
        f"One repetition takes {time_us(found.median_us)} (median; {shortest} to {longest}). "
        f"Over all repetitions: {_largest_parts(found.accounts, sum(lengths))}.",
    ]
    return lines("inferred_steps", title, sentences)


def _largest_parts(steps: Iterable[pb.StepAccount], total_us: float) -> str:
    by_label: dict[str, float] = {}
    for step in steps:
        for part in _parts(step.computing_us, step.copying_us, step.communicating_us, step.idle_by_cause):
            by_label[part.label] = by_label.get(part.label, 0.0) + part.us
    largest = sorted(by_label.items(), key=lambda part: -part[1])[:INFERRED_PARTS_SHOWN]
    return ", ".join(f"{label} {share(us, total_us)}" for label, us in largest)
