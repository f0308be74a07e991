"""Digests made by hand: every column has a value unless the test gives one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tb_gpudiag.digest.digest import TABLES, About, Digest
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.report import report_pb2 as pb

CAUSES = [cause.label for cause in Cause]

ABOUT = About(
    id="0" * 32,
    kind="trace",
    run="run",
    worker="worker0",
    span="1",
    path="run/worker0.1.pt.trace.json",
    status="COMPLETE",
    simulated=False,
    host="",
    pid=-1,
    rank=0,
    world_size=1,
    groups={},
    origin_ns=0,
    recording_ns=1_000_000,
    window_start_ns=0,
    window_end_ns=1_000_000,
    steps_basis="recorded",
    device_name="NVIDIA A100-SXM4-80GB",
    compute_capability="8.0",
    devices=1,
    causes=CAUSES,
    stacks=False,
    limiter="compute",
    sentence="",
    busy_share=1.0,
)

Row = Mapping[str, Any]


def _nothing(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [0] * len(CAUSES)
    if pa.types.is_boolean(kind):
        return False
    return "" if pa.types.is_string(kind) else 0


COLUMNS = {
    name: [(field.name, field.type, _nothing(field.type)) for field in schema]
    for name, schema in TABLES.items()
}
"""Name, type and value of a row that lacks it, of each column."""

EMPTY = {name: schema.empty_table() for name, schema in TABLES.items()}


def table(name: str, rows: Sequence[Row]) -> pa.Table:
    """Make a table of rows. What a row lacks is 0, False, "" or no time of any cause."""
    if not rows:
        return EMPTY[name]
    columns = [
        pa.array([row.get(column, nothing) for row in rows], kind) for column, kind, nothing in COLUMNS[name]
    ]
    return pa.Table.from_arrays(columns, schema=TABLES[name])


def digest(
    *,
    steps: Sequence[Row] = (),
    collectives: Sequence[Row] = (),
    kernels: Sequence[Row] = (),
    modules: Sequence[Row] = (),
    operators: Sequence[Row] = (),
    memory: Sequence[Row] = (),
    sites: Sequence[Row] = (),
    held: Sequence[Row] = (),
    findings: Sequence[pb.Finding] = (),
    **about: Any,
) -> Digest:
    """Make a digest of rows, and of ABOUT with these values in it."""
    return Digest(
        about=replace(ABOUT, **about),
        steps=table("steps", steps),
        collectives=table("collectives", collectives),
        kernels=table("kernels", kernels),
        modules=table("modules", modules),
        operators=table("operators", operators),
        memory=table("memory", memory),
        sites=table("sites", sites),
        held=table("held", held),
        findings=list(findings),
    )


def parts(**ns: int) -> list[int]:
    """Make a list with one number per cause, by their labels."""
    return [ns.get(cause, 0) for cause in CAUSES]
