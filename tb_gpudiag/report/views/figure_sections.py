"""Sections of the document on time and memory: causes, inferred steps, the peak of a GPU, the log of
torch.compile; the peak of each device's memory, its growth, and reserved but unused memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import code_place
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
from tb_gpudiag.wording.format import count, in_quotes, share, size_bytes, time_us
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of, size, throughput
from tb_gpudiag.wording.vocabulary import (
    CAUSES,
    MEMORY_KINDS,
    MFU_PARTS,
    PHASES,
    STEP_SIGNS,
    TREND_STATES,
    WORK_PARTS,
    term,
)

INFERRED_PARTS_SHOWN = 4  # parts of the repetitions' time that are listed, largest first

NS_US = 1e-3  # times on the wire are exact to a nanosecond


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
    median_us = found.median_us or report.step_time.median_us
    shown = "" if len(lengths) == found.repetitions else f" {count(len(lengths))} of them are steady."
    sentences = [
        f"No steps were recorded. On GPU {found.device} a sequence of {launches} repeats "
        f"{count(found.repetitions, 'time')}.{shown} {time_us(found.setup_us)} of the recording come before, "
        f"and {time_us(found.tail_us)} after.",
        STEP_SIGNS[pb.InferredSteps.Sign.Name(found.sign)].explanation.format(inside=found.inside),
        f"One {'step' if found.are_steps else 'repetition'} takes {time_us(median_us)} (median of "
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
    has_steps = report.step_time.steps > 1
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


ROWS_SHOWN = 5
"""Rows per device. The Report has more."""

FEWEST_FOR_95 = 4
"""With fewer floors there is no 95% confidence interval of the slope."""


def memory_summary(memory: Sequence[pb.DeviceMemory]) -> Lines:
    """Sentences about each device: its peak, its floor and its reserve."""
    sentences = []
    for m in memory:
        sentences.append(f"{m.name}: {_peak(m)}")
        sentences += [
            f"{m.name}: {line}" for line in (_kinds(m), _floor(m), _reserve(m), _segments(m)) if line
        ]
    return lines("memory", "Memory", sentences)


def _peak(m: pb.DeviceMemory) -> str:
    phase = f"in the {term(PHASES, m.peak_phase).noun}, " if m.peak_phase else ""
    text = f"{size_bytes(m.peak_allocated_bytes)} allocated at the peak ({phase}at {time_us(m.peak_us)})"
    if m.peak_reserved_bytes:
        text += f", {size_bytes(m.peak_reserved_bytes)} reserved"
    if m.capacity_bytes:
        text += f", {size_bytes(m.capacity_bytes)} capacity"
    if m.relative:
        text += "; the trace has no totals, so memory allocated before recording is not counted"
    elif m.device < 0:
        text += "; only memory allocated while a profiler ran is counted"
    return text


def _kinds(m: pb.DeviceMemory) -> str:
    parts = [
        f"{MEMORY_KINDS[pb.MemoryKind.Kind.Name(k.kind)].noun} {share(k.bytes, m.peak_allocated_bytes)}"
        for k in m.peak_kinds
    ]
    return f"the peak consists of {', '.join(parts)}" if len(parts) > 1 else ""


def _floor(m: pb.DeviceMemory) -> str:
    if not m.HasField("trend"):
        return ""
    trend = m.trend
    slope = m.floor_slope_bytes_per_step or trend.bytes_per_step
    text = f"the floor {_change(trend, slope)} (over {_floors(trend)}{_confidence(trend)})"
    if m.steps_until_full and trend.state == "rising":
        text += f"; at this rate memory is full after {_until_full(m)}"
    return text


def _change(trend: pb.FloorTrend, slope: float) -> str:
    change = str(_growth(trend, _sign(trend) * slope))
    return TREND_STATES.get(trend.state, TREND_STATES["unclear"]).noun.format(change=change)


def _growth(trend: pb.FloorTrend, per_unit: float) -> Quantity:
    """`7 MiB per step`. Without steps, what was seen: `7 MiB in 40 ms`."""
    if trend.unit == pb.FloorTrend.step:
        return size(per_unit, f"per {trend.word or 'step'}")
    seen_us = trend.end_us - trend.start_us
    return size(per_unit * seen_us / 1e6, f"in {time_us(seen_us)}")


def _sign(trend: pb.FloorTrend) -> int:
    return -1 if trend.state == "falling" else 1


def _floors(trend: pb.FloorTrend) -> str:
    if trend.unit == pb.FloorTrend.step:
        return count(trend.steps, trend.word or "step")
    return count(trend.steps, "time window")


def _confidence(trend: pb.FloorTrend) -> str:
    """The 95% confidence interval of the slope, or ""."""
    of_steps = trend.unit == pb.FloorTrend.step
    if not of_steps or trend.state not in {"rising", "falling", "unclear"} or trend.steps < FEWEST_FOR_95:
        return ""
    low, high = sorted(
        _sign(trend) * slope for slope in (trend.low_bytes_per_step, trend.high_bytes_per_step)
    )
    return f"; 95% confidence: {size_bytes(low)} to {size_bytes(high)}" if low != high else ""


def _until_full(m: pb.DeviceMemory) -> str:
    left = m.steps_until_full  # in the trend's unit
    if m.trend.unit != pb.FloorTrend.step:
        return f"about {time_us(left * 1e6)}"
    word = m.trend.word or "step"
    return f"about {count(int(left), word)}" if left >= 1 else f"less than one {word}"


def _reserve(m: pb.DeviceMemory) -> str:
    if not m.peak_reserved_bytes:
        return ""
    r = m.reserve
    parts = [
        f"{size_bytes(r.unused_at_peak_bytes)} reserved but unused at the peak "
        f"({size_bytes(r.most_unused_bytes)} at most over the recording)"
    ]
    if r.growths or r.shrinks:
        parts.append(f"reserved memory grew {count(r.growths, 'time')} and shrank {count(r.shrinks, 'time')}")
    if r.retries:
        parts.append(f"{count(r.retries, 'allocation')} had to empty the cache first")
    if r.out_of_memory:
        parts.append(f"out of memory {count(r.out_of_memory, 'time')}")
    if r.driver_us:
        parts.append(f"the GPU waited {time_us(r.driver_us)} for the driver to allocate or free memory")
    return "; ".join(parts)


def _segments(m: pb.DeviceMemory) -> str:
    r = m.reserve
    if not r.segments:
        return ""
    return (
        f"{count(r.segments, 'segment')}; the largest free block has {size_bytes(r.largest_free_bytes)}; "
        f"{size_bytes(r.free_in_used_segments_bytes)} are free inside segments in use"
    )


def growing_sites(memory: Sequence[pb.DeviceMemory]) -> Table:
    """Allocation sites that keep more memory from step to step, where that raises the floor."""
    shown = [(m, site) for m in memory if m.trend.state != "level" for site in m.sites[:ROWS_SHOWN]]
    columns: list[ColumnOf[tuple[pb.DeviceMemory, pb.MemorySite]]] = [
        (Column("Memory of"), lambda row: row[0].name),
        (Column("Allocated by", Kind.NAME), lambda row: _allocator(row[1].operator, row[1].module)),
        (numbers("growth"), lambda row: _growth(row[0].trend, row[1].bytes_per_step)),
        (numbers("still_live"), lambda row: size(row[1].bytes)),
        (numbers("live_count"), lambda row: number(row[1].count)),
        (Column("At", Kind.CODE), lambda row: code_place(row[1].place)),
    ]
    return table_of("growing", "Growing allocations", shown, columns)


def peak_owners(memory: Sequence[pb.DeviceMemory]) -> Table:
    """Live memory at the peak of the first device. Empty if it is all from one owner."""
    first = next(iter(memory), pb.DeviceMemory())
    columns: list[ColumnOf[pb.MemoryOwner]] = [
        (Column("Memory of"), lambda _: first.name),
        (Column("Kind"), lambda owner: MEMORY_KINDS[pb.MemoryKind.Kind.Name(owner.kind)].word),
        (Column("Allocated by", Kind.NAME), lambda owner: _allocator(owner.operator, owner.module)),
        (Column("Size", Kind.NUMBER), lambda owner: size(owner.bytes)),
        (Column("Allocations", Kind.NUMBER), lambda owner: number(owner.count) if owner.count else ""),
        (Column("At", Kind.CODE), lambda owner: code_place(owner.place)),
    ]
    shown = first.peak_owners[:ROWS_SHOWN] if len(first.peak_owners) > 1 else []
    return table_of("peak", "Memory at the peak", shown, columns)


def partly_free_segments(memory: Sequence[pb.DeviceMemory]) -> Table:
    """Segments of a snapshot that are partly in use, most free memory first."""
    shown = [
        (m.name, segment)
        for m in memory
        for segment in [s for s in m.segments if 0 < s.used_bytes < s.bytes][:ROWS_SHOWN]
    ]
    columns: list[ColumnOf[tuple[str, pb.MemorySegment]]] = [
        (Column("Memory of"), lambda row: row[0]),
        (Column("Address", Kind.CODE), lambda row: row[1].address),
        (Column("Size", Kind.NUMBER), lambda row: size(row[1].bytes)),
        (Column("Used", Kind.NUMBER), lambda row: share_of(row[1].used_bytes, row[1].bytes)),
        (Column("Blocks", Kind.NUMBER), lambda row: number(row[1].blocks)),
        (numbers("largest_free"), lambda row: size(row[1].largest_free_bytes)),
        (Column("Expandable"), lambda row: "yes" if row[1].expandable else ""),
    ]
    return table_of("segments", "Partly free segments", shown, columns)


def _allocator(operator: str, module: str) -> str:
    return f"{operator} in {module}" if operator and module else operator or module
