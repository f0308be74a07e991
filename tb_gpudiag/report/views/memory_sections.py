"""What the views say of memory: a Report's part as lines and tables. Every figure is the Report's."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.sections import place
from tb_gpudiag.wording.format import count, share, size_bytes, time_us

ROWS_SHOWN = 5
"""Sites and owners that a view lists; the Report holds more."""

FEWEST_FOR_95 = 4
"""Fewer floors cannot tell a slope with so much confidence."""

KINDS = {
    "before": "from before the recording",
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer_state": "optimizer state",
    "activation": "activations",
    "temporary": "temporaries",
    "input": "input",
    "unknown": "cannot be told",
}
"""Each kind of memory in words."""

SITE_TITLES = ("memory of", "allocated by", "grows by", "held", "allocations", "at")
PEAK_TITLES = ("peak of", "kind", "allocated by", "held", "allocations", "at")
SEGMENT_TITLES = ("segment of", "address", "size", "used", "blocks", "largest free")


def lines(memory: Sequence[pb.DeviceMemory]) -> list[str]:
    """Of each device: the peak and what it is made of, the floor, the reserve."""
    found = []
    for m in memory:
        found.append(_peak(m))
        found += [f"{m.name}: {line}" for line in (_kinds(m), _floor(m), _reserve(m), _segments(m)) if line]
    return found


def _peak(m: pb.DeviceMemory) -> str:
    line = f"{m.name}: {size_bytes(m.peak_allocated_bytes)} allocated at the peak"
    line += f" ({f'in {m.peak_phase}, ' if m.peak_phase else ''}at {time_us(m.peak_us)})"
    if m.peak_reserved_bytes:
        line += f", {size_bytes(m.peak_reserved_bytes)} reserved"
    if m.capacity_bytes:
        line += f", of {size_bytes(m.capacity_bytes)}"
    if m.relative:
        line += "; the trace has no totals: what was there before the recording is not counted"
    elif m.device < 0:
        line += "; counted while a profiler runs"
    return line


def _kinds(m: pb.DeviceMemory) -> str:
    total = m.peak_allocated_bytes
    parts = [f"{KINDS.get(k.kind, k.kind)} {share(k.bytes, total)}" for k in m.peak_kinds]
    return f"the peak is made of: {', '.join(parts)}" if len(parts) > 1 else ""


def _floor(m: pb.DeviceMemory) -> str:
    if not m.HasField("trend"):
        return ""
    trend = m.trend
    sign = -1 if trend.state == "falling" else 1
    change = f"{size_bytes(sign * trend.bytes_per_step)} a {trend.unit}"
    over = (
        count(trend.steps, "step")
        if trend.unit == "step"
        else count(trend.steps, "window of time", "windows of time")
    )
    words = {
        "rising": f"rises by {change}",
        "falling": f"falls by {change}",
        "plateau": "has risen and stays where it is",
        "level": "stays level",
        "unclear": f"changes by {change}, but not clearly",
    }
    text = f"the floor {words.get(trend.state, 'changes by ' + change)} (over {over}"
    if trend.state in {"rising", "falling", "unclear"} and trend.steps >= FEWEST_FOR_95:
        low, high = sorted((sign * trend.low_bytes_per_step, sign * trend.high_bytes_per_step))
        text += f"; 95 %: {size_bytes(low)} to {size_bytes(high)}" if low != high else ""
    text += ")"
    if m.steps_until_full and trend.state == "rising":
        left = m.steps_until_full  # in the trend's unit
        after = "about " + (count(int(left), "step") if trend.unit == "step" else time_us(left * 1e6))
        if trend.unit == "step" and left < 1:
            after = "less than a step"
        text += f"; at this rate memory is full after {after}"
    return text


def _reserve(m: pb.DeviceMemory) -> str:
    if not m.peak_reserved_bytes:
        return ""
    r = m.reserve
    parts = [
        f"{size_bytes(r.unused_at_peak_bytes)} reserved and not used at the peak "
        f"({size_bytes(r.most_unused_bytes)} at most)"
    ]
    if r.growths or r.shrinks:
        parts.append(f"the reserve grew {count(r.growths, 'time')} and shrank {count(r.shrinks, 'time')}")
    if r.retries:
        parts.append(f"{count(r.retries, 'allocation')} had to empty the cache first")
    if r.out_of_memory:
        parts.append(f"out of memory {count(r.out_of_memory, 'time')}")
    if r.driver_us:
        parts.append(f"the GPU waited {time_us(r.driver_us)} for calls to the driver for memory")
    return "; ".join(parts)


def _segments(m: pb.DeviceMemory) -> str:
    r = m.reserve
    if not r.segments:
        return ""
    return (
        f"{count(r.segments, 'segment')}, the largest free block is {size_bytes(r.largest_free_bytes)}, "
        f"{size_bytes(r.free_in_used_segments_bytes)} are free in segments that are used"
    )


def site_rows(memory: Sequence[pb.DeviceMemory]) -> list[tuple[str, ...]]:
    """Rows for SITE_TITLES: what holds more from step to step, where that is enough to raise the floor."""
    return [
        (
            m.name,
            _who(site.operator, site.module),
            f"{size_bytes(site.bytes_per_step)} a {m.trend.unit}",
            size_bytes(site.bytes),
            count(site.count),
            _at(site.place),
        )
        for m in memory
        if m.trend.state != "level"
        for site in m.sites[:ROWS_SHOWN]
    ]


def peak_rows(memory: Sequence[pb.DeviceMemory]) -> list[tuple[str, ...]]:
    """Rows for PEAK_TITLES: of the first device, what was alive at its peak."""
    return [
        (
            m.name,
            KINDS.get(owner.kind, owner.kind),
            _who(owner.operator, owner.module),
            size_bytes(owner.bytes),
            count(owner.count) if owner.count else "",
            _at(owner.place),
        )
        for m in memory[:1]
        for owner in m.peak_owners[:ROWS_SHOWN]
        if len(m.peak_owners) > 1
    ]


def segment_rows(memory: Sequence[pb.DeviceMemory]) -> list[tuple[str, ...]]:
    """Rows for SEGMENT_TITLES: of a snapshot, the segments with most free beside what is used."""
    return [
        (
            m.name,
            segment.address,
            f"{size_bytes(segment.bytes)}{', expandable' if segment.expandable else ''}",
            share(segment.used_bytes, segment.bytes),
            count(segment.blocks),
            size_bytes(segment.largest_free_bytes),
        )
        for m in memory
        for segment in [s for s in m.segments if 0 < s.used_bytes < s.bytes][:ROWS_SHOWN]
    ]


def _at(where: pb.Place) -> str:
    return place(pb.Place(file=where.file, line=where.line, function=where.function))


def _who(operator: str, module: str) -> str:
    return f"{operator} in {module}" if operator and module else operator or module
