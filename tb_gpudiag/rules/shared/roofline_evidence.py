"""Operators against the roofline: their figures, and what about their sizes makes them slow on any GPU."""

from __future__ import annotations

import json
from itertools import chain

from tb_gpudiag.facts.kernels.operator_costs import OperatorKind
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.answer import Evidence
from tb_gpudiag.wording.format import in_quotes, one_line
from tb_gpudiag.wording.quantity import Quantity, bandwidth, duration, intensity, number, share_of, throughput

# Longer labels leave no room for the figures next to them in a terminal.
_LONGEST_SHAPES = 60
_LONGEST_LABEL = 80
_SHORTEST_SHAPES = 20

# One tile of a matmul's result has 64 to 256 rows. With fewer rows most of it is empty, and each number is
# read for hardly any arithmetic. Matmuls of a batch run side by side, which hides part of that.
THIN = 64
THIN_IN_BATCH = 16
TIMES_LONGER = 16

# A large GPU has over a hundred multiprocessors, each of which computes one tile at a time.
TILE = 128
FEW_TILES = 32

# 16 bytes of 16-bit elements. TF32 needs multiples of 4, 8-bit types of 16; 8 serves the usual formats.
MULTIPLE = 8

# Two tiles of positions share all weights of a convolution.
FEW_POSITIONS = 256
MANY_WEIGHTS = 256 * 256
TINY_BATCH = 2

SMALL_HEAD = 32
FEW_TOKENS = 16

# Below about 128 tokens for each expert, reading its weights takes longer than multiplying them.
FEW_PER_EXPERT = 128


def operator_evidence(found: OperatorTime) -> Evidence:
    """An operator's time, rate and share of the roofline, and why it is slow, if that is known."""
    rates: tuple[Quantity, ...]
    name = in_quotes(found.operator)
    reason = why_slow(found)
    if found.operations:
        limit = "compute-bound" if found.arithmetic_ns >= found.memory_ns else "memory-bound"
        rates = (
            throughput(found.operations / found.time_ns / 1e3),
            share_of(found.reached, 1.0, "of the roofline"),
            intensity(found.operations / found.bytes, f"({limit})"),
        )
    else:
        rates = (bandwidth(found.bytes / found.time_ns), share_of(found.reached, 1.0, "of the bandwidth"))
        reason = {True: "contiguous inputs", False: "inputs not contiguous", None: ""}[found.in_order]
    return Evidence(
        f"{name} {tensors(found.shapes, max(_LONGEST_LABEL - len(name), _SHORTEST_SHAPES))}, {found.number}",
        duration(found.time_ns),
        (number(found.calls, "call"), *rates, *([reason] if reason else [])),
    )


def tensors(shapes: str, most: int = _LONGEST_SHAPES) -> str:
    """The shapes of an operator's tensors, without its other inputs, in so many characters."""
    shown = [dims for dims in json.loads(shapes) if dims]
    return one_line(json.dumps(shown, separators=(",", ":")), min(most, _LONGEST_SHAPES))


def achieved(found: OperatorTime) -> str:
    """The rate of an operator as text, such as `4.0 TFLOP/s and 127 GB/s`."""
    memory = str(bandwidth(found.bytes / found.time_ns))
    return (
        f"{throughput(found.operations / found.time_ns / 1e3)} and {memory}" if found.operations else memory
    )


def stated_peaks(peaks: Peaks | None, *, memory: bool = False) -> list[Evidence]:
    """The rates that the GPU's maker states, if they are known: of dense matmuls, and of memory if asked."""
    if peaks is None:
        return []
    rates = [
        ("Stated FP32 peak", peaks.fp32),
        ("Stated TF32 peak", peaks.tf32),
        ("Stated 16-bit peak", peaks.half),
    ]
    return [
        *Evidence.some("Peaks assumed of", peaks.assumed),
        *chain.from_iterable(Evidence.some(label, throughput(rate)) for label, rate in rates),
        *([Evidence("Stated memory bandwidth", bandwidth(peaks.bandwidth * 1e3))] if memory else []),
    ]


def why_slow(found: OperatorTime) -> str:
    """Return the reason, as in "tall and skinny (16 × 4,096 × 4,096)"; "" if the sizes are good."""
    match found.kind:
        case OperatorKind.MATMUL:
            return _matmul(*found.sizes)
        case OperatorKind.CONVOLUTION:
            return _convolution(*found.sizes)
        case OperatorKind.ATTENTION:
            return _attention(*found.sizes)
        case OperatorKind.EXPERTS:
            return _experts(*found.sizes)
        case _:
            return ""


def _matmul(batch: int, rows: int, inner: int, columns: int) -> str:
    thin = min(rows, columns)
    longest = max(rows, inner, columns)
    if thin <= (THIN if batch == 1 else THIN_IN_BATCH) and longest >= TIMES_LONGER * thin:
        return f"tall and skinny ({rows:,} × {inner:,} × {columns:,})"
    tiles = batch * -(-rows // TILE) * -(-columns // TILE)
    if tiles <= FEW_TILES and inner >= TIMES_LONGER * max(rows, columns):
        return f"few tiles: a result of {rows:,} × {columns:,} over an inner size of {inner:,}"
    return unaligned_sizes(inner, columns)


def unaligned_sizes(inner: int, columns: int) -> str:
    """Name the sizes of rows that tensor cores cannot load in whole 16 bytes; "" if there are none."""
    odd = sorted({size for size in (inner, columns) if size % MULTIPLE})
    if not odd:
        return ""
    are = "is not a multiple" if len(odd) == 1 else "are not multiples"
    return f"misaligned: {' and '.join(map(str, odd))} {are} of {MULTIPLE}"


def _convolution(batch: int, positions: int, inputs: int, outputs: int) -> str:
    if batch * positions <= FEW_POSITIONS and inputs * outputs >= MANY_WEIGHTS:
        return f"{batch} × {positions} positions for {inputs:,} × {outputs:,} channels"
    return f"a batch of {batch}" if batch <= TINY_BATCH else ""


def _attention(batch: int, heads: int, queries: int, keys: int, size: int) -> str:
    if min(queries, keys) <= FEW_TOKENS:
        return f"{queries:,} queries for {keys:,} keys"
    return f"small heads ({size})" if size <= SMALL_HEAD else ""


def _experts(tokens: int, chosen: int, used: int) -> str:
    each = tokens * chosen / used
    return f"{each:,.0f} tokens for each of {used} experts" if each < FEW_PER_EXPERT else ""
