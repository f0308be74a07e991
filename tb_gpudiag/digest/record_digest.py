"""What a digest takes from the Report; and the digest of a recording of which an event file keeps no more."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE
from tb_gpudiag.digest.digest import HELD, MEMORY, SITES, STEPS, TABLES, WORK, About, Digest, MemoryPeaks
from tb_gpudiag.digest.work_tables import lists, table
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import busiest, frame_of, peak_text, short_place
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.wording.format import one_line

_NS_PER_US: Final = 1_000
_LONGEST_REASON: Final = 500
# Names of a file's path.
_NAMES_KEPT: Final = 2


def record_digest(report: pb.Report, id_: str, time_ns: int) -> Digest:
    """Return the Digest of a Report without large parts: of a record (see training/diagnosing.py), or of
    a job that hangs.

    The record has the account of the step window only: each step gets the same shares. Tables of kernels,
    operators and collectives are empty.
    """
    device = busiest(report)
    about = {
        "id": id_,
        "kind": pb.TraceInfo.Kind.Name(report.trace.kind),
        "host": report.trace.host,
        "groups": {},
        "origin_ns": time_ns,
        "recording_ns": round(report.trace.duration_us * _NS_PER_US),
        "window_start_ns": 0,
        "window_end_ns": round(device.window_us * _NS_PER_US) if device is not None else 0,
        "steps_basis": "recorded" if report.steps else "none",
        "device_name": device.name if device is not None else "",
        "compute_capability": "",
        "devices": len(report.devices),
        "stacks": False,
    }
    empty = {name: TABLES[name].empty_table() for name in ("collectives", "kernels", "modules", "operators")}
    return report_digest(report, about, steps=_steps(report, device), **empty)


def report_digest(report: pb.Report, about: dict[str, Any], **tables: pa.Table) -> Digest:
    """Return a Digest with all that comes from the Report. about, tables: what does not."""
    info = report.trace
    rows = [(_name(memory), floor) for memory in report.memory for floor in memory.floors]
    return Digest(
        about=About(
            run=info.run,
            worker=info.worker,
            span=info.span,
            path=info.path,
            status=pb.TraceInfo.Status.Name(info.status),
            simulated=info.simulated,
            pid=info.pid or NONE,
            rank=info.rank,
            world_size=info.world_size,
            causes=[cause.label for cause in Cause],
            limiter=pb.Verdict.Limiter.Name(report.verdict.limiter),
            sentence=report.verdict.sentence,
            busy_share=report.verdict.busy_share,
            mfu=report.mfu.mfu,
            mfu_of=peak_text(report.mfu) if report.mfu.parts else "",
            memory=[_peaks(memory) for memory in report.memory],
            reason=info.reason,
            unchecked={one.rule: _why(one) for one in report.unchecked},
            **about,
        ),
        memory=table(
            MEMORY,
            {
                "device": [device for device, _ in rows],
                "time_ns": [round(floor.us * _NS_PER_US) for _, floor in rows],
                "floor_bytes": [int(floor.bytes) for _, floor in rows],
                "warm_up": [floor.excused for _, floor in rows],
            },
        ),
        sites=_sites(report),
        held=_held(report),
        findings=[_without_ranges(finding) for finding in report.findings],
        **tables,
    )


def _why(unchecked: pb.Unchecked) -> str:
    how = f" {unchecked.how_to_record}" if unchecked.how_to_record else ""
    return one_line(f"{unchecked.reason}.{how}", _LONGEST_REASON)


def _peaks(memory: pb.DeviceMemory) -> MemoryPeaks:
    last = memory.failures[-1] if memory.failures else pb.MemoryFailure()
    return MemoryPeaks(
        device=_name(memory),
        peak_allocated_bytes=int(memory.peak_allocated_bytes),
        peak_reserved_bytes=int(memory.peak_reserved_bytes),
        capacity_bytes=int(memory.capacity_bytes),
        failed_bytes=int(last.requested_bytes),
        failures=len(memory.failures),
        failed_at=short_place(last.place),
    )


def _name(memory: pb.DeviceMemory) -> str:
    return memory.name or str(memory.device)


def _sites(report: pb.Report) -> pa.Table:
    rows = [(_name(memory), site) for memory in report.memory for site in memory.sites]
    return table(
        SITES,
        {
            "device": [device for device, _ in rows],
            "operator": [site.operator for _, site in rows],
            "place": [str(frame_of(site.place).without_line()) for _, site in rows],
            "bytes_per_step": [int(site.bytes_per_step) for _, site in rows],
            "bytes": [int(site.bytes) for _, site in rows],
        },
    )


def _held(report: pb.Report) -> pa.Table:
    rows: list[tuple[str, str, str, str, str, int, bool, int, int]] = []
    for memory in report.memory:
        rest = {kind.kind: kind.bytes for kind in memory.peak_kinds}
        for owner in memory.peak_owners:
            rest[owner.kind] = rest.get(owner.kind, 0.0) - owner.bytes
            frame = frame_of(owner.place)
            file = "/".join(frame.file.replace("\\", "/").split("/")[-_NAMES_KEPT:])
            at = frame.function, file, frame.line, frame.line_kind is LineKind.RUNNING
            kind, allocator = pb.MemoryKind.Kind.Name(owner.kind), owner.operator or owner.module
            rows.append((_name(memory), kind, allocator, *at, int(owner.bytes), owner.count))
        rows += [
            (_name(memory), pb.MemoryKind.Kind.Name(kind), "", "", "", 0, False, int(size), 0)
            for kind, size in rest.items()
            if size > 0
        ]
    return table(HELD, {name: [row[at] for row in rows] for at, name in enumerate(HELD.names)})


def _without_ranges(finding: pb.Finding) -> pb.Finding:
    """Return the finding without its places on one trace's timeline."""
    copy = pb.Finding()
    copy.CopyFrom(finding)
    del copy.ranges[:]
    return copy


def _steps(report: pb.Report, device: pb.Device | None) -> pa.Table:
    start = np.array([round(step.start_us * _NS_PER_US) for step in report.steps], np.int64)
    duration = np.array([round(step.duration_us * _NS_PER_US) for step in report.steps], np.int64)
    # The shares of the step window: WORK, then idle time by cause. They are 0 without a GPU.
    shares = np.zeros(len(WORK) + len(Cause))
    if device is not None:
        shares[: len(WORK)] = [getattr(device, f"window_{name}_us") for name in WORK]
        place = {pb.CauseTime.Cause.Value(cause.label): len(WORK) + cause for cause in Cause}
        for part in device.window_idle_by_cause:
            if part.cause in place:
                shares[place[part.cause]] = part.us
        shares /= max(shares.sum(), 1.0)
    # Split durations by shares, to the nanosecond. Shape (durations, shares).
    ends = np.rint(duration[:, None] * np.cumsum(shares)).astype(np.int64)
    parts = np.diff(ends, prepend=0, axis=1)
    none = np.zeros((len(start), len(Cause)), np.int64)
    return table(
        STEPS,
        {
            "name": [step.name for step in report.steps],
            "start_ns": start,
            "end_ns": start + duration,
            "steady": np.ones(len(start), np.bool_),
            **{f"{name}_ns": parts[:, i] for i, name in enumerate(WORK)},
            "idle_ns": lists(np.ascontiguousarray(parts[:, len(WORK) :])),
            "host_ns": lists(none),
        },
    )
