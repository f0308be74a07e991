"""Build the Digest of a trace. The only module here that takes facts out of Facts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.digest.building.collective_table import collective_table
from tb_gpudiag.digest.building.parts import part_columns, table, waiting_marked
from tb_gpudiag.digest.building.report_tables import device_memory, memory_table, site_table, without_ranges
from tb_gpudiag.digest.building.work_tables import cpu_kernel_table, kernel_table, operator_table
from tb_gpudiag.digest.digest import STEPS, About, Digest
from tb_gpudiag.facts.core.causes import Cause
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
_MOST_GROUP_RANKS: Final = 1_000_000
_LONGEST_NAME: Final = 200


def build_digest(facts: Facts, report: pb.Report, file: TraceFile) -> Digest:
    """Build the Digest of a trace and its Report."""
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
    return Digest(
        about=_about(facts, report, file, basis, left_out),
        steps=steps,
        collectives=collectives,
        kernels=kernels,
        operators=operator_table(facts.host, facts.work, window, paths),
        memory=memory_table(report),
        sites=site_table(report),
        findings=[without_ranges(finding) for finding in report.findings],
    )


def _steps(facts: Facts, left_out: list[str]) -> tuple[pa.Table, str]:
    found, window = facts.step_times, facts.window
    if found is None or not len(found):
        start, end = np.array([window.start_ns]), np.array([window.end_ns])
        names, steady, basis = [""], np.ones(1, np.bool_), "none"
    else:
        names, start, end = found.times.names, found.times.start_ns, found.times.end_ns
        steady = found.host_start_ns >= window.start_ns
        basis = "recorded" if len(facts.recorded_steps) else "inferred"
    if len(start) > MOST_STEPS:
        left_out.append(f"{len(start) - MOST_STEPS:,} of {len(start):,} steps")
        names, start, end, steady = (
            names[:MOST_STEPS],
            start[:MOST_STEPS],
            end[:MOST_STEPS],
            steady[:MOST_STEPS],
        )
    return _step_table(facts, names, start, end, steady), basis


def _steps_begin_ns(steps: pa.Table) -> int:
    """Return when the GPU begins the first steady step. Work in the window before that is of other steps."""
    starts = steps.filter(steps.column("steady")).column("start_ns")
    return int(starts[0].as_py()) if len(starts) else 0


def _step_table(facts: Facts, names: list[str], start: Int64, end: Int64, steady: Bool) -> pa.Table:
    main_thread = facts.host_time.main_thread_spans(_around(facts.window, start, end))
    return table(
        STEPS,
        {
            "name": [one_line(name, _LONGEST_NAME) for name in names],
            "start_ns": start,
            "end_ns": end,
            "steady": steady,
            **part_columns(facts.device, waiting_marked(facts, main_thread), start, end),
        },
    )


def _around(window: Window, start: Int64, end: Int64) -> Window:
    """Return the window, extended to the steps before it."""
    return Window(
        min(window.start_ns, int(start.min(initial=window.start_ns))),
        max(window.end_ns, int(end.max(initial=window.end_ns))),
    )


def _about(facts: Facts, report: pb.Report, file: TraceFile, basis: str, left_out: list[str]) -> About:
    trace, info = facts.trace, report.trace
    device = facts.device
    properties = facts.properties(device.id) if device is not None else None
    capability = properties.compute_capability if properties is not None else None
    return About(
        id=file.identity,
        generator=report.generator,
        kind=trace.kind,
        run=info.run,
        worker=info.worker,
        span=info.span,
        path=info.path,
        status=pb.TraceInfo.Status.Name(info.status),
        simulated=info.simulated,
        host=one_line(trace.metadata.host_name, _LONGEST_NAME) or info.host,
        pid=info.pid or NONE,
        rank=info.rank,
        world_size=info.world_size,
        groups=_groups(facts),
        origin_ns=trace.metadata.base_time_ns + trace.start_ns,
        recording_ns=facts.recording.duration_ns,
        window_start_ns=facts.window.start_ns,
        window_end_ns=facts.window.end_ns,
        steps_basis=basis,
        device_name=one_line(device.name, _LONGEST_NAME) if device is not None else "",
        compute_capability=".".join(map(str, capability))
        if capability
        else (properties.architecture if properties is not None else ""),
        devices=len(facts.devices),
        causes=[cause.label for cause in Cause],
        stacks=facts.recorded.stacks,
        shapes=facts.recorded.shapes,
        limiter=report.verdict.limiter,
        sentence=report.verdict.sentence,
        busy_share=report.verdict.busy_share,
        first_run_ns=facts.steady.first_run_ns,
        memory=[device_memory(memory) for memory in report.memory],
        left_out=left_out,
        notes=list(info.notes),
        recorder=trace.metadata.recorder,
    )


def _groups(facts: Facts) -> dict[str, list[int]]:
    """Return the ranks of each process group, as the metadata lists them, else as messages do."""
    found: dict[str, list[int]] = {}
    room = _MOST_GROUP_RANKS
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
        numbers = sorted({rank for rank in ranks if type(rank) is int and 0 <= rank < 2**31})
        known = found.get(one_line(name, _LONGEST_NAME), [])
        if len(known) < len(numbers) <= room:
            found[one_line(name, _LONGEST_NAME)] = numbers
            room -= len(numbers)
    return found
