"""GPU metrics that Nsight Systems sampled (`--gpu-metrics-devices=...`), as counters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from tb_gpudiag.trace.counters import Samples, Series
from tb_gpudiag.trace.kineto.columns import EARLIEST_NS, LATEST_NS, Part
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database
from tb_gpudiag.trace.nsys.nsys_parts import counter_part

_TABLE: Final = "GPU_METRICS"
# The low byte of a type is the GPU's number.
_GPU: Final = 0xFF
# Of some fifty metrics per GPU, those that say how busy which unit was. Others slow reading down.
_SHOWN: Final = re.compile(
    r"(?i)GPC Clock|SYS Clock|SMs? Active|SM Issue|Tensor Active|SM Instructions/Tensor|DRAM .*Bandwidth|"
    r"PCIe .*(Throughput|Bandwidth)|NVLink .*(Throughput|Bandwidth)|Power|Temperature"
)
_MOST_METRICS: Final = 32
# Ten metrics at 10 kHz for 40 s. Later samples are not read.
_MOST_ROWS: Final = 4_000_000


def gpu_metrics(database: Database) -> Iterator[Part]:
    """Read the samples of the metrics that are shown."""
    listed = database.whole("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), ("metricName",))
    names: dict[tuple[int, int], str] = {}
    for kind, metric, name in zip(
        listed.numbers["typeId"].tolist(),
        listed.numbers["metricId"].tolist(),
        listed.texts["metricName"].to_pylist(),
        strict=True,
    ):
        if name and MISSING not in (kind, metric) and _SHOWN.search(name) and len(names) < _MOST_METRICS:
            names.setdefault((kind, metric), name)
    if not names or not database.has(_TABLE, "timestamp", "typeId", "metricId", "value"):
        return
    chosen = ", ".join(map(str, sorted({metric for _, metric in names})))
    where = f"metricId IN ({chosen}) AND rowid <= {_MOST_ROWS}"
    for rows in database.chunks(_TABLE, ("timestamp", "typeId", "metricId", "value"), (), where):
        at = rows.numbers
        keys, code = np.unique(np.stack([at["typeId"], at["metricId"]], axis=1), axis=0, return_inverse=True)
        pairs = [tuple(key) for key in keys.tolist()]
        known = np.array([pair in names for pair in pairs], np.bool_)[code.reshape(-1)]
        known &= (at["timestamp"] >= EARLIEST_NS) & (at["timestamp"] <= LATEST_NS) & (at["value"] != MISSING)
        series = [Series(names.get((kind, metric), ""), "", kind & _GPU) for kind, metric in keys.tolist()]
        yield counter_part(
            Samples(
                series,
                code.reshape(-1)[known].astype(np.int32),
                at["timestamp"][known],
                at["value"][known].astype(np.float64),
            )
        )
