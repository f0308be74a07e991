"""Parts of a digest that come from the Report alone."""

from __future__ import annotations

import pyarrow as pa

from tb_gpudiag.digest.building.parts import table
from tb_gpudiag.digest.digest import MEMORY, SITES, DeviceMemory
from tb_gpudiag.report import report_pb2 as pb


def device_memory(memory: pb.DeviceMemory) -> DeviceMemory:
    """Return what the digest keeps of a device's memory."""
    return DeviceMemory(
        device=memory.name or str(memory.device),
        peak_allocated_bytes=int(memory.peak_allocated_bytes),
        peak_reserved_bytes=int(memory.peak_reserved_bytes),
        capacity_bytes=int(memory.capacity_bytes),
        slope_bytes_per_step=memory.floor_slope_bytes_per_step,
        slope_state=memory.trend.state,
        slope_unit=memory.trend.unit,
    )


def memory_table(report: pb.Report) -> pa.Table:
    """Return the table MEMORY."""
    rows = [(memory.name or str(memory.device), floor) for memory in report.memory for floor in memory.floors]
    return table(
        MEMORY,
        {
            "device": [device for device, _ in rows],
            "name": [floor.name for _, floor in rows],
            "time_ns": [round(floor.us * 1_000) for _, floor in rows],
            "floor_bytes": [int(floor.bytes) for _, floor in rows],
            "warm_up": [floor.excused for _, floor in rows],
        },
    )


def site_table(report: pb.Report) -> pa.Table:
    """Return the table SITES."""
    rows = [(memory.name or str(memory.device), site) for memory in report.memory for site in memory.sites]
    return table(
        SITES,
        {
            "device": [device for device, _ in rows],
            "operator": [site.operator for _, site in rows],
            "place": [_place_text(site.place) for _, site in rows],
            "bytes_per_step": [int(site.bytes_per_step) for _, site in rows],
            "bytes": [int(site.bytes) for _, site in rows],
        },
    )


def _place_text(place: pb.Place) -> str:
    return f"{place.function} ({place.file})" if place.file else place.function


def without_ranges(finding: pb.Finding) -> pb.Finding:
    """Return the finding without its places on one trace's timeline."""
    copy = pb.Finding()
    copy.CopyFrom(finding)
    del copy.ranges[:]
    return copy
