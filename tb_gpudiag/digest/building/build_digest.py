"""Build the Digest of a trace. The only module here that takes facts out of Facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.building.collective_table import collective_table
from tb_gpudiag.digest.building.record_digest import report_digest
from tb_gpudiag.digest.building.work_tables import (
    cpu_kernel_table,
    kernel_table,
    operator_table,
    part_columns,
    table,
)
from tb_gpudiag.digest.digest import STEPS, Digest
from tb_gpudiag.digest.rank_lists import MOST_RANKS
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.places import Paths
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.wording.format import one_line

# Recordings have some tens of steps.
MOST_STEPS: Final = 5_000
# A job of ten thousand ranks with as many groups as ranks.
_MOST_GROUPS: Final = 20_000
_LONGEST_NAME: Final = 200


def build_digest(facts: Facts, report: pb.Report, file: TraceFile) -> Digest:
    left_out: list[str] = []
    steps, basis = _steps(facts, left_out)
    collectives = collective_table(facts, steps.column("start_ns").to_numpy(), left_out)
    paths = Paths(facts.host)
    window = facts.window
    kernels = (
        kernel_table(facts.device.kernels, facts.host, paths, _steps_begin_ns(steps))
        if facts.device is not None
        else cpu_kernel_table(facts.host, window, paths)
    )
    return report_digest(
        report,
        _about(facts, report, file, basis, left_out),
        steps=steps,
        collectives=collectives,
        kernels=kernels,
        operators=operator_table(facts.host, facts.work, facts.host_window, paths),
    )


def _steps(facts: Facts, left_out: list[str]) -> tuple[pa.Table, str]:
    found, window = facts.step_times, facts.window
    if found is None or not len(found):
        start, end = np.array([window.start_ns]), np.array([window.end_ns])
        names, steady, basis = [""], np.ones(1, np.bool_), "none"
    else:
        names, start, end = found.times.names, found.times.start_ns, found.times.end_ns
        place = np.arange(len(found)) - facts.steady.first
        steady = (place >= 0) & (place < len(facts.steps))
        basis = "recorded" if len(facts.recorded_steps) else "inferred"
    if len(start) > MOST_STEPS:
        left_out.append(f"{len(start) - MOST_STEPS:,} of {len(start):,} steps")
        names, start, end = names[:MOST_STEPS], start[:MOST_STEPS], end[:MOST_STEPS]
    main_thread = facts.main_thread_over(_around(window, start, end))
    columns = {
        "name": [one_line(name, _LONGEST_NAME) for name in names],
        "start_ns": start,
        "end_ns": end,
        "steady": steady[:MOST_STEPS],
        **part_columns(facts.device, main_thread, start, end),
    }
    return table(STEPS, columns), basis


def _steps_begin_ns(steps: pa.Table) -> int:
    """Return when the GPU begins the first steady step. What it runs before belongs to earlier steps."""
    starts = steps.filter(steps.column("steady")).column("start_ns")
    return int(starts[0].as_py()) if len(starts) else 0


def _around(window: Window, start: Int64, end: Int64) -> Window:
    """Return the window, extended to the steps before it."""
    return Window(
        min(window.start_ns, int(start.min(initial=window.start_ns))),
        max(window.end_ns, int(end.max(initial=window.end_ns))),
    )


def _about(
    facts: Facts, report: pb.Report, file: TraceFile, basis: str, left_out: list[str]
) -> dict[str, Any]:
    """Return the fields of About that do not come from the Report."""
    trace, device = facts.trace, facts.device
    properties = device.properties if device is not None else None
    capability = properties.compute_capability if properties is not None else None
    return {
        "id": file.identity,
        "kind": trace.kind,
        "host": one_line(trace.metadata.host_name, _LONGEST_NAME) or report.trace.host,
        "groups": _groups(facts),
        "origin_ns": trace.origin_ns,
        "recording_ns": facts.recording.duration_ns,
        "window_start_ns": facts.window.start_ns,
        "window_end_ns": facts.window.end_ns,
        "steps_basis": basis,
        "device_name": one_line(device.name, _LONGEST_NAME) if device is not None else "",
        "compute_capability": ".".join(map(str, capability))
        if capability
        else (properties.architecture if properties is not None else ""),
        "devices": len(facts.devices),
        "stacks": facts.recorded.stacks,
        "left_out": left_out,
        "recorder": trace.metadata.recorder,
        "server": facts.job.server.value if facts.job.server is not None else "",
    }


def _groups(facts: Facts) -> dict[str, Sequence[int]]:
    """Return the ranks of each process group: from the metadata, else from messages."""
    found: dict[str, Sequence[int]] = {}
    room = MOST_RANKS
    configured = facts.trace.metadata.distributed.get("pg_config")
    listed: list[tuple[Any, Any]] = [
        (entry.get("pg_name"), entry.get("ranks"))
        for entry in (configured if isinstance(configured, list) else [])
        if isinstance(entry, dict)
    ]
    listed += [(said.group, list(said.ranks)) for said in facts.events.messages]
    for name, ranks in listed:
        if not isinstance(name, str) or not isinstance(ranks, list) or len(found) >= _MOST_GROUPS:
            continue
        numbers = tuple(sorted({rank for rank in ranks if type(rank) is int and 0 <= rank < 2**31}))
        known = found.get(one_line(name, _LONGEST_NAME), ())
        if len(known) < len(numbers) <= room:
            found[one_line(name, _LONGEST_NAME)] = numbers
            room -= len(numbers)
    return found
