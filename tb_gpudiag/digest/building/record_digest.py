"""Make a Digest of what an event file keeps of a recording, for the history of its run."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE
from tb_gpudiag.digest.building.parts import lists, table
from tb_gpudiag.digest.building.report_tables import device_memory, memory_table, site_table, without_ranges
from tb_gpudiag.digest.digest import STEPS, TABLES, About, Digest
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.busiest import busiest

_WORK: Final = ("computing", "copying", "communicating")


def record_digest(report: pb.Report, id_: str, time_ns: int) -> Digest:
    """Return the Digest of a record: a Report without what takes room (see training/compact_record.py).

    The record has the account of the step window only: each step gets the same shares. Tables of kernels,
    operators and collectives are empty.
    """
    device = busiest(report)
    return Digest(
        about=_about(report, device, id_, time_ns),
        steps=_steps(report, device),
        collectives=TABLES["collectives"].empty_table(),
        kernels=TABLES["kernels"].empty_table(),
        operators=TABLES["operators"].empty_table(),
        memory=memory_table(report),
        sites=site_table(report),
        findings=[without_ranges(finding) for finding in report.findings],
    )


def _about(report: pb.Report, device: pb.Device | None, id_: str, time_ns: int) -> About:
    info = report.trace
    return About(
        id=id_,
        generator=report.generator,
        kind="trace",
        run=info.run,
        worker=info.worker,
        span=info.span,
        path=info.path,
        status=pb.TraceInfo.Status.Name(info.status),
        simulated=info.simulated,
        host=info.host,
        pid=info.pid or NONE,
        rank=info.rank,
        world_size=info.world_size,
        groups={},
        origin_ns=time_ns,
        recording_ns=round(info.duration_us * 1_000),
        window_start_ns=0,
        window_end_ns=round(device.window_us * 1_000) if device is not None else 0,
        steps_basis="recorded" if report.steps else "none",
        device_name=device.name if device is not None else "",
        compute_capability="",
        devices=len(report.devices),
        causes=[cause.label for cause in Cause],
        stacks=False,
        shapes=False,
        limiter=report.verdict.limiter,
        sentence=report.verdict.sentence,
        busy_share=report.verdict.busy_share,
        first_run_ns=0,
        memory=[device_memory(memory) for memory in report.memory],
    )


def _steps(report: pb.Report, device: pb.Device | None) -> pa.Table:
    start = np.array([round(step.start_us * 1_000) for step in report.steps], np.int64)
    duration = np.array([round(step.duration_us * 1_000) for step in report.steps], np.int64)
    parts = _split(duration, _shares(device))
    none = np.zeros((len(start), len(Cause)), np.int64)
    return table(
        STEPS,
        {
            "name": [step.name for step in report.steps],
            "start_ns": start,
            "end_ns": start + duration,
            "steady": np.ones(len(start), np.bool_),
            **{f"{name}_ns": parts[:, i] for i, name in enumerate(_WORK)},
            "idle_ns": lists(np.ascontiguousarray(parts[:, len(_WORK) :])),
            "host_ns": lists(none),
        },
    )


def _shares(device: pb.Device | None) -> npt.NDArray[np.float64]:
    """Return the shares of the step window: work, then idle time by cause. They are 0 without a GPU."""
    shares = np.zeros(len(_WORK) + len(Cause))
    if device is not None:
        shares[: len(_WORK)] = [getattr(device, f"window_{name}_us") for name in _WORK]
        place = {cause.label: len(_WORK) + cause for cause in Cause}
        for part in device.window_idle_by_cause:
            if part.cause in place:
                shares[place[part.cause]] = part.us
        shares /= max(shares.sum(), 1.0)
    return shares


def _split(duration: npt.NDArray[np.int64], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Split durations by shares, to the nanosecond. Shape (durations, shares)."""
    ends = np.rint(duration[:, None] * np.cumsum(shares)).astype(np.int64)
    return np.diff(ends, prepend=0, axis=1)
