"""Operation tables: one row per operation of a training job with pipeline and data parallelism.

The layout is that of the tables published with "Understanding Stragglers in Large Model Training Using
What-if Analysis" (OSDI'25): the profiler of each worker writes what it computes and sends, per micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from tb_gpudiag.errors import TraceError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]
    Float64 = NDArray[np.float64]
    Bool = NDArray[np.bool_]


class Stream(Enum):
    """Where an operation queues. Operations of one stream run one after another."""

    COMPUTING = 0
    COLLECTIVES = 1
    OWN = 2
    """Sends and receives: each optype has a stream of its own."""


class Scope(Enum):
    """Who takes part in an operation."""

    WORKER = 0
    PAIR = 1
    """A sender and a receiver in neighboring stages."""
    STAGE = 2
    """All data-parallel ranks of a stage."""
    PIPELINE = 3
    """Those stages of one data-parallel rank that record the operation."""
    JOB = 4


@dataclass(frozen=True)
class Optype:
    """What the dependency model knows of an optype. `kind` merges the two sides of a transfer."""

    name: str
    stream: Stream
    scope: Scope
    kind: str

    @property
    def communicates(self) -> bool:
        return self.stream != Stream.COMPUTING


def _optype(name: str, stream: Stream, scope: Scope, kind: str = "") -> Optype:
    return Optype(name, stream, scope, kind or name)


OPTYPES = (
    _optype("forward-compute", Stream.COMPUTING, Scope.WORKER),
    _optype("backward-compute", Stream.COMPUTING, Scope.WORKER),
    _optype("gc", Stream.COMPUTING, Scope.WORKER),
    _optype("optimizer", Stream.COMPUTING, Scope.WORKER),
    _optype("forward-send", Stream.OWN, Scope.PAIR, "forward-pp-comm"),
    _optype("forward-recv", Stream.OWN, Scope.PAIR, "forward-pp-comm"),
    _optype("backward-send", Stream.OWN, Scope.PAIR, "backward-pp-comm"),
    _optype("backward-recv", Stream.OWN, Scope.PAIR, "backward-pp-comm"),
    _optype("params-all-gather", Stream.COLLECTIVES, Scope.STAGE),
    _optype("grads-reduce-scatter", Stream.COLLECTIVES, Scope.STAGE),
    _optype("grads-all-reduce", Stream.COLLECTIVES, Scope.STAGE),
    _optype("layernorm-grads-all-reduce", Stream.COLLECTIVES, Scope.WORKER),  # among tensor-parallel ranks
    _optype("embedding-grads-all-reduce", Stream.COLLECTIVES, Scope.PIPELINE),
    _optype("optimizer-clip-main-grad", Stream.COLLECTIVES, Scope.JOB),
)
"""All optypes that the dependency model knows; `OperationTable.optype` indexes it."""

INDEX = {optype.name: index for index, optype in enumerate(OPTYPES)}


@dataclass(frozen=True)
class Parallelism:
    """Sizes of the job's parallelism: data, pipeline, and virtual stages per pipeline rank."""

    dp: int
    pp: int
    vpp: int = 1

    @classmethod
    def from_meta(cls, meta: Mapping[str, object]) -> Parallelism:
        """Read `dp_size`, `pp_size` and `vpp_size`. Raise UsageError if one is missing or not positive."""
        sizes = []
        for name in ("dp_size", "pp_size", "vpp_size"):
            value = meta.get(name, 1 if name == "vpp_size" else None)
            if not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"the job's parallelism has {name}={value!r}", remedy="give a positive number"
                )
            sizes.append(value)
        return cls(*sizes)


COLUMNS = ("dp_rank", "stage", "step", "optype", "start_ts", "duration")
"""Columns that a table must have."""


@dataclass(frozen=True)
class OperationTable:
    """Operations in any order, shape (n,) each.

    optype: index into OPTYPES. start_s and duration_s: seconds; the zero may differ from step to step.
    seq: orders operations that start at once. chunk: virtual stage within the worker, -1 if the operation is
    of all chunks.
    """

    dp_rank: Int64
    stage: Int64
    step: Int64
    optype: Int64
    start_s: Float64
    duration_s: Float64
    seq: Int64
    chunk: Int64

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def from_arrow(cls, table: Any) -> OperationTable:
        """Read a pyarrow.Table with the published columns: `dp_rank`, `stage`, `step`, `optype`,
        `start_ts` (s), `duration` (s), and where known `seq_id` and `mc`.

        Raise TraceError if a column or all rows are missing, if an optype is unknown, or if a time is not
        finite.
        """
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise TraceError(
                f"the operation table has no column {', '.join(missing)}",
                remedy=f"write the columns {', '.join(COLUMNS)}",
            )
        if not table.num_rows:
            raise TraceError("the operation table has no rows")

        def integers(name: str, default: int) -> Int64:
            if name not in table.column_names:
                return np.full(table.num_rows, default)
            return np.asarray(table[name].fill_null(default).to_numpy(), np.int64)

        return cls(
            integers("dp_rank", -1),
            integers("stage", -1),
            integers("step", -1),
            _optypes(table["optype"]),
            _times(table, "start_ts"),
            _times(table, "duration"),
            integers("seq_id", 0),
            integers("mc", -1),
        )


def _times(table: Any, name: str) -> Float64:
    times = np.asarray(table[name].to_numpy(), np.float64)
    if not np.isfinite(times).all() or (name == "duration" and times.min() < 0):
        raise TraceError(f"column {name} of the operation table has times that are not finite or negative")
    return times


def _optypes(column: Any) -> Int64:
    coded = column.combine_chunks()
    coded = coded if hasattr(coded, "dictionary") else coded.dictionary_encode()
    names = coded.dictionary.to_pylist()
    codes = np.asarray(coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False), np.int64)
    known = np.array([INDEX.get(name, -1) for name in [*names, None]])
    unknown = sorted({str([*names, None][code]) for code in np.unique(codes[known[codes] < 0])})
    if unknown:
        raise TraceError(
            f"the operation table has optypes that the dependency model does not know: {', '.join(unknown)}",
            remedy=f"it knows {', '.join(INDEX)}",
        )
    return known[codes]
