"""What about the sizes of an operator makes it slow on any GPU."""

from __future__ import annotations

from tb_gpudiag.facts.kernels.operator_costs import Kind
from tb_gpudiag.facts.kernels.roofline import OperatorTime

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


def why_slow(found: OperatorTime) -> str:
    """Return the reason, as in "tall and skinny (16 × 4,096 × 4,096)"; "" if the sizes are good."""
    match found.kind:
        case Kind.MATMUL:
            return _matmul(*found.sizes)
        case Kind.CONVOLUTION:
            return _convolution(*found.sizes)
        case Kind.ATTENTION:
            return _attention(*found.sizes)
        case Kind.EXPERTS:
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
    multiples = f"a multiple of {MULTIPLE}" if len(odd) == 1 else f"multiples of {MULTIPLE}"
    return f"misaligned: {' and '.join(map(str, odd))} {'is' if len(odd) == 1 else 'are'} not {multiples}"


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
