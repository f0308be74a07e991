"""What the views have in common: a Report's parts as labels and texts. Every figure is the Report's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import column_us, count, share, size_bytes, time_us

SEVERITIES = {pb.Finding.INFO: "INFO", pb.Finding.WARNING: "WARNING", pb.Finding.ERROR: "ERROR"}

CAUSES = {
    "input": "data loading",
    "compile": "compilation",
    "sync": "blocking call",
    "allocator": "memory allocation",
    "collective": "collective call",
    "python": "Python between operators",
    "dispatch": "operators on the host",
    "launch": "launch calls",
    "latency": "launch latency",
    "queued": "work queued, cause not visible",
    "unlinked": "no launch recorded",
    "profiler": "the profiler itself",
}
"""Each idle cause in words."""

LIMITERS = {
    "input": "Input",
    "launch": "Kernel launches",
    "sync": "Synchronisation",
    "python": "Python on the host",
    "compute": "GPU computing",
    "copy": "Copies",
    "communication": "Communication",
    "memory": "Memory",
    "mixed": "Several causes",
    "unknown": "Not known",
}

SYNC_KINDS = {
    "print": "a tensor as text",
    "size": "size known to the GPU only (nonzero, boolean index)",
    "condition": "if on a tensor's value",
    "item": ".item() or float()",
    "copy_to_host": "copy to the host (.cpu(), .tolist())",
    "copy_to_device": "copy to the device",
    "device": "wait for the whole device",
    "event": "wait for an event",
    "stream": "wait for a stream",
    "copy": "copy",
}
"""Each kind of wait in words."""

HOTSPOTS_SHOWN = 5
"""Launch hotspots, host activities and memory sites that a view lists; the Report holds more."""

QUEUES_SHOWN = 3
"""Streams whose launch queues a view tells of: the one with most launches, and others on which work waits."""

HARDLY_EVER = 0.01
"""Of the step window: a queue that holds something for less is not worth a line."""

PLACES_SHOWN = 5


class Row(NamedTuple):
    """One row of a step account: `part` is computing, copying, communicating or an idle cause."""

    part: str
    label: str
    fraction: float  # of the step window
    time: str
    share: str


@dataclass(frozen=True)
class Account:
    """Where a device's step window went. The rows add up to the window, also as printed."""

    title: str
    rows: list[Row]
    total: str


def heading(trace: pb.TraceInfo) -> str:
    """`run · worker · span`, with what is not there left out."""
    parts = ["" if trace.run == "." else trace.run, trace.worker, f"span {trace.span}" if trace.span else ""]
    name = " · ".join(part for part in parts if part) or trace.path
    return f"{name} (simulated)" if trace.simulated else name


def overview_title(reports: Sequence[pb.Report]) -> str:
    return count(len(reports), "trace")


def overview_rows(reports: Sequence[pb.Report]) -> list[tuple[str, ...]]:
    """Rows for OVERVIEW_TITLES: of several traces, what is the matter with each."""
    if len(reports) < 2:
        return []
    return [
        (
            heading(report.trace),
            limiter(report),
            " ".join(f"{SEVERITIES[f.severity]} {f.rule} {f.title}" for f in report.findings[:1]) or "none",
            ", ".join(dict.fromkeys(f.rule for f in report.findings[1:])),
        )
        for report in reports
    ]


def trace_line(trace: pb.TraceInfo) -> str:
    """What was read, in one line."""
    parts = [count(trace.events, "event"), time_us(trace.duration_us)]
    if trace.rank >= 0:
        parts.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    kept = [
        name for name in ("steps", "stacks", "shapes", "memory", "flops") if getattr(trace.recorded, name)
    ]
    parts.append("recorded: " + (", ".join(kept) or "nothing beside the events"))
    if trace.malformed_events:
        parts.append(count(trace.malformed_events, "malformed event") + " skipped")
    if trace.status == pb.TraceInfo.PARTIAL:
        parts.append("the file ends in the middle")
    if trace.status == pb.TraceInfo.WRITING:
        parts.append("the file is still being written")
    return " · ".join(parts)


def limiter(report: pb.Report) -> str:
    """The limiter in words; a CPU-only job's computing is no GPU's, and a snapshot tells of memory only."""
    if report.trace.kind != "trace":
        return LIMITERS["memory"]
    found = report.verdict.limiter
    if found == "compute" and not report.devices:
        return "CPU computing"
    return LIMITERS.get(found, found)


def account(device: pb.Device, steps: int) -> Account:
    """The device's step window by part, parts of no time left out."""
    parts = [
        ("computing", "computing", device.window_computing_us),
        ("copying", "copying, not hidden", device.window_copying_us),
        ("communicating", "communicating, not hidden", device.window_communicating_us),
        *((c.cause, f"idle: {CAUSES.get(c.cause, c.cause)}", c.us) for c in device.window_idle_by_cause),
    ]
    parts = [part for part in parts if part[2] > 0 and device.window_us > 0]
    times, total = column_us([us for _, _, us in parts], device.window_us)
    rows = [
        Row(part, label, us / device.window_us, time, share(us, device.window_us))
        for (part, label, us), time in zip(parts, times, strict=True)
    ]
    name = f"GPU {device.id}" + (f", {device.name}" if device.name else "")
    return Account(
        f"{name}: {count(steps, 'step')}" if steps else f"{name}: the whole recording", rows, total
    )


def cost(finding: pb.Finding) -> str:
    """What it costs and what a fix gives back; empty for a finding about the recording."""
    if finding.cost_bytes_per_step:
        return f"{size_bytes(finding.cost_bytes_per_step)} more in each step"
    if finding.cost_bytes:
        return size_bytes(finding.cost_bytes)
    if not finding.cost_us:
        return ""
    text = time_us(finding.cost_us)
    if not finding.HasField("saving") or not finding.saving.high_us:
        return text
    saving = finding.saving
    low, high = time_us(saving.low_us), time_us(saving.high_us)
    if saving.basis == "at most":
        return f"{text}, a fix gives back at most {high}"
    span = high if low == high else f"{low} to {high}" if saving.low_us else f"up to {high}"
    return f"{text}, a fix gives back {span}" + (f" ({saving.basis})" if saving.basis else "")


def code(report: pb.Report, number: int) -> str:
    """The code of the finding of this number (from 1), or a word on where it stands already."""
    own = report.findings[number - 1].fix.code.rstrip("\n")
    for earlier, finding in enumerate(report.findings[: number - 1], start=1):
        if own and finding.fix.code.rstrip("\n") == own:
            return f"# as for finding {earlier}"
    return own


def place(where: pb.Place) -> str:
    """`file:line in function (operator)`, as much of it as is known."""
    spot = f"{where.file}:{where.line}" if where.file and where.line else where.file
    if where.function:
        spot = f"{spot} in {where.function}" if spot else where.function
    if where.operator:
        spot = f"{spot} ({where.operator})" if spot else where.operator
    return spot


def places(finding: pb.Finding) -> list[tuple[str, str]]:
    """(place, time or bytes) of the first places."""
    return [(place(p), _weight(p)) for p in finding.places[:PLACES_SHOWN]]


def _weight(where: pb.Place) -> str:
    if where.us:
        return time_us(where.us)
    return size_bytes(where.bytes) if where.bytes else ""


def host_rows(report: pb.Report) -> list[tuple[str, ...]]:
    """(name, kind, time, place) of what took the main host thread's time."""
    return [
        # A Python frame is its own place, and so is an operator that no frame encloses.
        (h.name, h.kind, time_us(h.us), "" if h.kind == "python" or not h.place.file else place(h.place))
        for h in report.host[:HOTSPOTS_SHOWN]
    ]


def family_rows(report: pb.Report) -> list[tuple[str, ...]]:
    """Rows for FAMILY_TITLES: the busiest device's kernels."""
    first = report.devices[0].id if report.devices else 0
    return [
        (
            f.family,
            count(f.kernels),
            time_us(f.us),
            share(f.share),
            share(f.tensor_core_us, f.us) if f.tensor_core_us else "",
        )
        for f in report.kernel_families
        if f.device == first
    ]


def hotspot_rows(report: pb.Report) -> list[tuple[str, ...]]:
    """Rows for HOTSPOT_TITLES, by operator."""
    operators = [spot for spot in report.launch_hotspots if spot.kind == "operator"]
    return [
        (
            spot.key,
            count(spot.launches),
            time_us(spot.host_us),
            time_us(spot.dispatch_us),
            time_us(spot.kernel_us),
            share(spot.empty_queue_share),
            time_us(spot.idle_us),
            time_us(spot.idle_per_step_us) if report.steps else "",
        )
        for spot in operators[:HOTSPOTS_SHOWN]
    ]


def queue_lines(report: pb.Report) -> list[str]:
    """One line a stream of note, those with most launches first: how much waited on it."""
    launched = [queue for queue in report.launch_queues if queue.launches]
    others = [queue for queue in launched[1:] if 1 - queue.empty_share >= HARDLY_EVER]
    return [_queue(queue) for queue in [*launched[:1], *others][:QUEUES_SHOWN]]


def _queue(queue: pb.LaunchQueue) -> str:
    mean = f"{queue.mean_depth:.1f}" if queue.mean_depth < 100 else count(round(queue.mean_depth))
    if 0 < queue.mean_depth < 0.05:
        mean = "< 0.1"
    line = (
        f"GPU {queue.device} stream {queue.stream}: {count(queue.launches, 'launch', 'launches')}; {mean} "
        f"waiting on average over time, {count(queue.most_depth)} at most, none {share(queue.empty_share)} "
        f"of the step window"
    )
    if queue.full_queue_launches:
        line += (
            f"; {count(queue.full_queue_launches, 'call')} waited {time_us(queue.full_queue_us)} for a place "
            f"in the full queue: the host was ahead of the GPU"
        )
    return line


def sync_rows(report: pb.Report) -> list[tuple[str, ...]]:
    """Rows for SYNC_TITLES: the waits that the GPU stood idle after. The others cost nothing."""
    return [
        (
            SYNC_KINDS.get(site.kind, site.kind),
            count(site.count),
            time_us(site.held_us),
            time_us(site.refill_us),
            place(site.place),
        )
        for site in report.sync_sites[:HOTSPOTS_SHOWN]
        if site.refill_us
    ]


def plan_rows(report: pb.Report) -> list[tuple[str, ...]]:
    """Rows for PLAN_TITLES: the fixes in their order, where there is an order to speak of."""
    fixes = report.plan.fixes
    return (
        [(f"{fix.rule} {fix.name}", time_us(fix.saving_us), time_us(fix.window_us)) for fix in fixes]
        if len(fixes) > 1
        else []
    )


NUMBERS = frozenset(
    {
        "gives back, at most",
        "step window then",
        "count",
        "of the window",
        "on tensor cores",
        "time",
        "launches",
        "in calls",
        "dispatch",
        "kernels",
        "empty queue",
        "idle caused",
        "a step",
        "waits",
        "host held",
        "GPU idle after",
        "grows by",
        "held",
        "used",
        "blocks",
        "largest free",
        "allocations",
    }
)
"""Titles of the columns that are aligned to the right."""

FAMILY_TITLES = ("family", "count", "time", "of the window", "on tensor cores")
HOTSPOT_TITLES = (
    "operator",
    "launches",
    "in calls",
    "dispatch",
    "kernels",
    "empty queue",
    "idle caused",
    "a step",
)
SYNC_TITLES = ("wait", "waits", "host held", "GPU idle after", "at")
PLAN_TITLES = ("fix", "gives back, at most", "step window then")
OVERVIEW_TITLES = ("trace", "limited by", "first finding", "others")
HOST_TITLES = ("what", "kind", "time", "mostly in")


def filled_columns(
    titles: tuple[str, ...], rows: list[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table without the columns that are empty in every row."""
    filled = [i for i in range(len(titles)) if any(row[i] for row in rows)]
    return tuple(titles[i] for i in filled), [tuple(row[i] for i in filled) for row in rows]


def unchecked_rows(report: pb.Report) -> list[tuple[str, str]]:
    """(rule, what it lacks). Rules that lack the same are one row: a trace without a GPU leaves out most."""
    groups: dict[str, list[str]] = {}
    for item in report.unchecked:
        lacks = f"{item.reason}. {item.how_to_record}" if item.how_to_record else item.reason
        groups.setdefault(lacks, []).append(f"{item.rule} {item.name}")
    return [
        (rules[0], lacks)
        if len(rules) == 1
        else (count(len(rules), "rule"), f"{lacks.rstrip('.')}. Left out: {', '.join(rules)}")
        for lacks, rules in groups.items()
    ]


def clear_rows(report: pb.Report) -> list[tuple[str, str]]:
    """(rule, what it saw) of the rules that found nothing."""
    return [(f"{item.rule} {item.name}", item.reason) for item in report.clear]
