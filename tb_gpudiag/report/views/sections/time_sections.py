"""Where time went by cause and in inferred steps, where the peak of a GPU goes, and which log
tells about compilations."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import (
    Account,
    Column,
    ColumnOf,
    Kind,
    Lines,
    Part,
    Table,
    lines,
    numbers,
    table_of,
)
from tb_gpudiag.wording.format import count, in_quotes, share, time_us
from tb_gpudiag.wording.quantity import duration, number, share_of, throughput
from tb_gpudiag.wording.vocabulary import CAUSES, MFU_PARTS, STEP_SIGNS, WORK_PARTS, term

INFERRED_PARTS_SHOWN = 4
"""Parts of the repetitions' time that are listed, largest first."""

NS_US = 1e-3
"""Times on the wire are exact to a nanosecond."""


def accounts(report: pb.Report) -> list[Account]:
    """One account per device, busiest first. Parts without time are left out."""
    return [_account(device, _window(report, device)) for device in report.devices]


def _window(report: pb.Report, device: pb.Device) -> str:
    steady = len(device.step_accounts)
    if steady:
        known = len(report.steps) or report.inferred_steps.repetitions
        steps = count(known, _step_noun(report))
        return f"{count(steady)} of {steps}" if steady < known else steps
    whole = device.window_us >= report.trace.duration_us - NS_US
    return "the whole recording" if whole else "the steady part of the recording"


def _step_noun(report: pb.Report) -> str:
    if report.serving.steps:
        return "engine step"
    return "step" if report.steps else "inferred step"


def _account(device: pb.Device, window: str) -> Account:
    name = f"GPU {device.id}" + (f", {in_quotes(device.name, 80)}" if device.name else "")
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
    shown = "" if len(lengths) == found.repetitions else f" {count(len(lengths))} of them are steady."
    sentences = [
        f"No steps were recorded. On GPU {found.device} a sequence of {launches} repeats "
        f"{count(found.repetitions, 'time')}.{shown} {time_us(found.setup_us)} of the recording come before, "
        f"and {time_us(found.tail_us)} after.",
        STEP_SIGNS[pb.InferredSteps.Sign.Name(found.sign)].explanation.format(inside=found.inside),
        f"One {'step' if found.are_steps else 'repetition'} takes {time_us(found.median_us)} (median of "
        f"{count(len(lengths))}; {shortest} to {longest}). Over them: "
        f"{_largest_parts(found.accounts, sum(lengths))}.",
    ]
    return lines("inferred_steps", title, sentences)


def _largest_parts(steps: Iterable[pb.StepAccount], total_us: float) -> str:
    by_label: dict[str, float] = {}
    for step in steps:
        for part in _parts(step.computing_us, step.copying_us, step.communicating_us, step.idle_by_cause):
            by_label[part.label] = by_label.get(part.label, 0.0) + part.us
    largest = sorted(by_label.items(), key=lambda part: -part[1])[:INFERRED_PARTS_SHOWN]
    return ", ".join(f"{label} {share(us, total_us)}" for label, us in largest)


HOTSPOTS_SHOWN = 5
"""Rows. The Report has more."""


def launch_hotspots(report: pb.Report) -> Table:
    """Operators whose launches cost most."""
    operators = [spot for spot in report.launch_hotspots if spot.kind == pb.LaunchHotspot.operator]
    has_steps = report.step_time.steps > 0
    columns: list[ColumnOf[pb.LaunchHotspot]] = [
        (Column("Operator", Kind.NAME), lambda spot: spot.key),
        (numbers("launches"), lambda spot: number(spot.launches)),
        (numbers("launch_api"), lambda spot: duration(spot.host_us * 1e3)),
        (numbers("operator_overhead"), lambda spot: duration(spot.dispatch_us * 1e3)),
        (numbers("gpu_time"), lambda spot: duration(spot.kernel_us * 1e3)),
        (numbers("idle_gpu_share"), lambda spot: share_of(spot.empty_queue_share, 1)),
        (numbers("idle_caused"), lambda spot: duration(spot.idle_us * 1e3)),
        (numbers("idle_per_step"), lambda spot: duration(spot.idle_per_step_us * 1e3) if has_steps else ""),
    ]
    return table_of("launch_hotspots", "Launches by operator", operators[:HOTSPOTS_SHOWN], columns)


def peak(report: pb.Report) -> list[Account]:
    """Where the peak of the busiest GPU goes. Empty without an MFU."""
    found = report.mfu
    if not found.parts:
        return []
    window_us = sum(part.us for part in found.parts)
    title = f"MFU: where the peak of {throughput(found.peak_teraflops)} ({found.computes_in}) goes"
    if found.hfu > found.mfu:
        again = share(found.recomputing_us, window_us)
        title += f"; with what backward repeats {share(found.hfu)} (HFU), in {again} of the time"
    low, high = (share(of(found.steps, default=0.0)) for of in (min, max))
    if low != high:
        title += f"; by step {low} to {high}"
    return [Account("mfu", title, tuple(map(_part, found.parts)), window_us)]


def _part(part: pb.MfuPart) -> Part:
    id = pb.MfuPart.Part.Name(part.part)
    return Part(id, term(MFU_PARTS, id).noun, part.us)


def compile_log(report: pb.Report) -> Lines:
    """Which log the tables are from, and what it does not tell."""
    log = report.compile_log
    if not log.name:
        return lines("compile_log", "Log of torch.compile", [])
    torch = f", of torch {log.torch}" if log.torch else ""
    broken = f", {count(log.malformed_entries)} of them unreadable" if log.malformed_entries else ""
    entries = count(log.entries, "entry", "entries")
    return lines(
        "compile_log",
        "Log of torch.compile",
        [f"{in_quotes(log.name)}{torch}: {entries}{broken}.", *log.notes],
    )
