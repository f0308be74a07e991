"""Columns of parts: the GPU's and the host's time by what it was spent on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.digest import WORK
from tb_gpudiag.facts.core.causes import Cause, CauseSpans, time_by_cause
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.device_facts import DeviceFacts

Columns = dict[str, Any]
"""Columns of a table by name."""


def part_columns(device: DeviceFacts | None, main_thread: CauseSpans, start: Int64, end: Int64) -> Columns:
    """Return the columns of parts of the stretches [start, end), shape (k,) each. The GPU's are 0 without a
    device."""
    nothing = np.zeros((len(start), len(Cause)), np.int64)
    of_gpu = {f"{name}_ns": nothing[:, 0] for name in WORK} | {"idle_ns": lists(nothing)}
    if device is not None:
        account = device.time.account([""] * len(start), start, end)
        of_gpu = {f"{name}_ns": getattr(account, f"{name}_ns") for name in WORK}
        of_gpu["idle_ns"] = lists(account.idle_ns)
    on_host = Intervals(main_thread.start_ns, main_thread.end_ns)
    return {**of_gpu, "host_ns": lists(time_by_cause(on_host, main_thread.cause, start, end))}


def lists(values: Int64) -> pa.ListArray:
    """Return rows of numbers as a column of lists."""
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


def table(schema: pa.Schema, columns: Columns) -> pa.Table:
    """Make a table of columns: arrays or lists by name."""
    arrays = []
    for field in schema:
        values = columns[field.name]
        arrays.append(
            values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)
        )
    return pa.Table.from_arrays(arrays, schema=schema)
