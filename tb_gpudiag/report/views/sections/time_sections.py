"""Where time went: by cause, in inferred steps, on the host, by kernel family, in launches and in
synchronizations, and where the peak of a GPU goes."""

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
    Section,
    Table,
    lines,
    numbers,
    table_of,
)
from tb_gpudiag.report.views.sections.finding_sections import full_place
from tb_gpudiag.wording.format import count, in_quotes, share, time_us
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of, size, throughput
from tb_gpudiag.wording.vocabulary import (
    CAUSES,
    EXPOSURE_REASONS,
    FAMILIES,
    HOST_KINDS,
    MFU_PARTS,
    STEP_SIGNS,
    SYNC_KINDS,
    WORK_PARTS,
    term,
)

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


ROWS_SHOWN = 5
"""Rows of each table. The Report has more."""


def host_time(report: pb.Report) -> Table:
    """Activities that took most of the main host thread's time."""
    columns: list[ColumnOf[pb.HostActivity]] = [
        (Column("Activity", Kind.NAME), lambda activity: activity.name),
        (Column("Kind"), lambda activity: HOST_KINDS[pb.HostActivity.Kind.Name(activity.kind)].word),
        (numbers("host_time"), lambda activity: duration(activity.us * 1e3)),
        (Column("Mostly in", Kind.CODE), _host_place),
    ]
    return table_of("host", "Where host time went", report.host[:ROWS_SHOWN], columns)


def _host_place(activity: pb.HostActivity) -> str:
    """A Python frame is its own place."""
    is_frame = activity.kind == pb.HostActivity.python
    return full_place(activity.place) if not is_frame and activity.place.file else ""


def kernel_families(report: pb.Report) -> Table:
    """GPU time of the busiest device by kernel family."""
    busiest = report.devices[0].id if report.devices else 0
    shown = [family for family in report.kernel_families if family.device == busiest]
    columns: list[ColumnOf[pb.KernelFamily]] = [
        (Column("Family"), lambda family: FAMILIES[pb.KernelFamily.Family.Name(family.family)].word),
        (numbers("kernels"), lambda family: number(family.kernels)),
        (numbers("kernel_time"), lambda family: duration(family.us * 1e3)),
        (numbers("kernel_share"), lambda family: share_of(family.share, 1)),
        (
            numbers("tensor_cores"),
            lambda family: share_of(family.tensor_core_us, family.us) if family.tensor_core_us else "",
        ),
    ]
    return table_of("kernel_families", "GPU time by kernel family", shown, columns)


MODULES_SHOWN = 10


def module_times(report: pb.Report) -> Table:
    """GPU time of the busiest device by module. Empty where no work has a module."""
    busiest = report.devices[0].id if report.devices else 0
    shown = [each for each in report.modules if each.device == busiest][:MODULES_SHOWN]
    columns: list[ColumnOf[pb.ModuleTime]] = [
        (Column("Module", Kind.CODE), lambda each: each.module or "(no module)"),
        (numbers("modules"), lambda each: number(each.modules) if each.module else ""),
        (numbers("kernels"), lambda each: number(each.kernels)),
        (numbers("kernel_time"), lambda each: duration(each.us * 1e3)),
        (numbers("module_share"), lambda each: share_of(each.share, 1)),
    ]
    return table_of("modules", "GPU time by module", shown, columns)


COLLECTIVES_SHOWN = 10


def collectives(report: pb.Report) -> Table:
    """Collectives while which nothing computes, and why."""
    shown = [one for one in report.collectives[:COLLECTIVES_SHOWN] if one.exposed_us]
    columns: list[ColumnOf[pb.ExposedCollectives]] = [
        (Column("Collective"), lambda one: one.kind.replace("_", "-")),
        (Column("For", Kind.CODE), lambda one: one.unit),
        (Column("Parallelism"), lambda one: one.parallelism),
        (numbers("collective_calls"), lambda one: number(one.calls)),
        (numbers("message_size"), lambda one: size(one.bytes) if one.bytes else ""),
        (numbers("collective_time"), lambda one: duration(one.us * 1e3)),
        (numbers("exposed_time"), lambda one: duration(one.exposed_us * 1e3)),
        (Column("Why it is exposed"), _why_exposed),
    ]
    return table_of("collectives", "Collectives with nothing computing beside them", shown, columns)


def _why_exposed(one: pb.ExposedCollectives) -> str:
    word = EXPOSURE_REASONS[pb.ExposedCollectives.Reason.Name(one.why)].word
    return f"{word}: {one.late_in}" if one.late_in else word


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
    return table_of("launch_hotspots", "Launches by operator", operators[:ROWS_SHOWN], columns)


def synchronizations(report: pb.Report) -> Table:
    """Synchronizations after which the GPU was idle. The others cost nothing."""
    columns: list[ColumnOf[pb.SyncSite]] = [
        (Column("Call"), lambda site: SYNC_KINDS[pb.SyncSite.Kind.Name(site.kind)].word),
        (numbers("sync_calls"), lambda site: number(site.count)),
        (numbers("host_blocked"), lambda site: duration(site.held_us * 1e3)),
        (numbers("idle_after"), lambda site: duration(site.refill_us * 1e3)),
        (Column("At", Kind.CODE), lambda site: full_place(site.place)),
    ]
    shown = [site for site in report.sync_sites[:ROWS_SHOWN] if site.refill_us]
    return table_of("synchronizations", "Synchronizations", shown, columns)


OPERATORS_SHOWN = 10
"""Rows of the table. The Report has more."""


def mfu_sections(report: pb.Report) -> list[Section]:
    """The account of the peak, and operators by the time beyond their roofline. Empty without an MFU."""
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
    return [Account("mfu", title, tuple(map(_part, found.parts)), window_us), _operators(found)]


def _part(part: pb.MfuPart) -> Part:
    id = pb.MfuPart.Part.Name(part.part)
    return Part(id, term(MFU_PARTS, id).noun, part.us)


def _operators(found: pb.Mfu) -> Section:
    columns: list[ColumnOf[pb.OperatorRate]] = [
        (Column("Operator", Kind.NAME), lambda rate: rate.operator),
        (Column("Shapes", Kind.CODE), lambda rate: rate.shapes),
        (Column("Format"), lambda rate: rate.number),
        (numbers("calls"), lambda rate: number(rate.calls)),
        (numbers("gpu_time"), lambda rate: duration(rate.us * 1e3)),
        (numbers("beyond_roofline"), lambda rate: duration(rate.lost_us * 1e3)),
        (numbers("teraflops"), lambda rate: throughput(rate.teraflops) if rate.teraflops else ""),
        (numbers("terabytes"), lambda rate: bandwidth(rate.terabytes * 1e3)),
        (numbers("of_roofline"), lambda rate: share_of(rate.reached, 1) if rate.reached else ""),
    ]
    shown = found.operators[:OPERATORS_SHOWN]
    return table_of("operator_rates", "Operators that lose most of the peak", shown, columns)
