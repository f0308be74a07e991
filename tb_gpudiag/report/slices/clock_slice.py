"""Slices of step clocks: the steps of one rank in bins, each with its extremes and phases.

Each line is in one bin, the one of its last step: the steps of all bins times their means are the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import Prepared, joined, pack_meta, read_meta
from tb_gpudiag.trace.step_clocks.clock_state import FIRST_PHASE, TOTAL, StepLines
from tb_gpudiag.vocabulary.written import PHASES

_US: Final = 1e3  # per ms
_NAMES: Final = (*PHASES, "core")


def prepare_clock(lines: Mapping[int, StepLines]) -> dict[str, npt.NDArray[Any]]:
    """Return what slices need, as plain arrays by name."""
    parts = [(found.step, found.steps, found.values) for found in lines.values()]
    return {
        "clock_meta": pack_meta({"ranks": list(lines)}),
        **joined("clock_first", "clock", ("step", "steps"), [part[:2] for part in parts]),
        "clock_values": np.concatenate([values for *_, values in parts]),
    }


def slice_clock(
    prepared: Prepared, rank: int | None, start: float | None, end: float | None, width: int
) -> pb.ClockSlice:
    """Return the steps of a rank from start to before end in at most `width` bins. None is the first rank, or
    the run's start or end. Raises UsageError: no clock of this rank was read, or the range is empty."""
    ranks = read_meta(prepared, "clock_meta")["ranks"] if "clock_meta" in prepared else []
    if not ranks or (rank is not None and rank not in ranks):
        raise UsageError("There is no step clock of this rank.", where="rank")
    index = 0 if rank is None else ranks.index(rank)
    a, b = prepared["clock_first"][index : index + 2].tolist()
    step, steps, values = (np.asarray(prepared[f"clock_{name}"][a:b]) for name in ("step", "steps", "values"))
    first, last = int(step[0] - steps[0] + 1), int(step[-1])
    begin, stop = (
        first if start is None else max(first, round(max(start, first))),
        last + 1 if end is None else round(min(end, last + 1)),
    )
    if stop <= begin:
        raise UsageError("end must be greater than start, within the run.", where="end")
    shown = slice(*np.searchsorted(step, [begin, stop]).tolist())
    step, steps, values = step[shown], steps[shown], values[shown]
    of_point = int(steps.max(initial=1))
    each = _round(max(-(-(stop - begin) // width), of_point))
    begin -= begin % each
    bins = -(-(stop - begin) // each)
    at = (step - begin) // each
    found = pb.ClockSlice(
        rank=ranks[index],
        first_step=first,
        last_step=last,
        step=(begin + each * np.arange(bins)).astype(np.float64),
        end_step=stop,
        steps=np.bincount(at, steps, bins),
        mean_us=_means(at, steps, values[:, TOTAL], bins),
    )
    values_ms = values[:, TOTAL]
    low, median, high = np.zeros((3, bins))
    order = np.lexsort((values_ms, at))
    ends = np.cumsum(np.bincount(at, minlength=bins))
    starts = np.concatenate([[0], ends[:-1]])
    some = ends > starts
    starts, ends = starts[some], ends[some]
    ordered = values_ms[order] * _US
    low[some], high[some] = ordered[starts], ordered[ends - 1]
    median[some] = (ordered[(starts + ends - 1) // 2] + ordered[(starts + ends) // 2]) / 2
    found.low_us.extend(low)
    found.median_us.extend(median)
    found.high_us.extend(high)
    for column, name in enumerate(_NAMES, FIRST_PHASE):
        found.phases.add(name=name, us=_means(at, steps, values[:, column], bins))
    return found


def _round(steps: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …: bins begin at multiples of it."""
    power = 10 ** (len(str(steps)) - 1)
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= steps)


def _means(at: Int64, steps: Int64, values_ms: Float64, bins: int) -> Float64:
    """Return the mean of each bin in µs, over the steps that have a value; 0 without one."""
    timed = ~np.isnan(values_ms)
    at, steps, values_ms = at[timed], steps[timed], values_ms[timed]
    sums, counts = np.bincount(at, values_ms * steps, bins), np.bincount(at, steps, bins)
    return sums / np.maximum(counts, 1) * _US
