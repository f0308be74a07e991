"""GD502: matrix products with dimensions that tensor cores cannot load well."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.matmuls import matrices, time_by_shapes
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.kernel_time import KernelTime, kernel_time
from tb_gpudiag.trace.events import Bool
from tb_gpudiag.trace.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.wording.format import count, one_line, time_ns

# In public traces such kernels take 10 to 19 % of the window where a dimension is odd, and below 1 %
# elsewhere.
LEAST_SHARE = 0.05

# In a public trace (attention over 5,185 tokens) they ran at a fifth of the rate of its aligned products;
# part of the gap is memory traffic, which alignment does not change.
MOST_GAIN = 0.75

SHAPES_SHOWN = 3

# Inputs with less than a twentieth of the time are not what this is about.
LEAST_OF_SHAPES = 20

# 16 bytes of 16-bit numbers. TF32 needs 4 and 8-bit types 16; a multiple of 8 serves the usual ones.
MULTIPLE = 8

_CODE = """# Pad what the products run over up to a multiple of 8 (64 is better still):
vocabulary = -(-vocabulary // 64) * 64                 # embedding and output layer
tokens = torch.nn.functional.pad(tokens, (0, -tokens.shape[1] % 8), value=pad_token)   # sequence length
# A tokenizer does it by itself: DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Kernels whose names say that they load rows element by element, or 16-bit products that could not go
    to the tensor cores at all."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    kernels = time.kernels
    off = kernels.matrix & (kernels.arithmetic == Arithmetic.HALF_ON_FP32_CORES)
    chosen = kernels.unaligned | off
    free = time.free(chosen, claimed)
    cost_ns = free.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(f"matrix products with unaligned rows take {time.of_window(cost_ns)} of the step window")
    shapes, odd = _shapes(time, chosen)
    evidence = [Evidence("kernels for unaligned rows", f"{time.figure(chosen)}, {count(int(chosen.sum()))}")]
    if off.any():
        evidence.append(Evidence("of these without tensor cores", time_ns(time.total_ns(off))))
    if odd:
        evidence.append(Evidence(f"dimensions that are no multiple of {MULTIPLE}", ", ".join(map(str, odd))))
    evidence += [Evidence(f"inputs {shape}", time_ns(ns)) for shape, ns in shapes]
    return Finding(
        title=f"Matrix products with unaligned dimensions take {time.of_window(cost_ns)} of the time",
        summary="Tensor cores are fed in pieces of 16 bytes. Where a row's length is no multiple of that, "
        "the library falls back to kernels that load element by element (their names end in align1 "
        "or align2), and the tensor cores wait.",
        fix=Fix(
            f"Make batch, sequence, vocabulary and hidden sizes multiples of {MULTIPLE} by padding.",
            _CODE,
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, round(cost_ns * MOST_GAIN), "estimate"),
        evidence=evidence,
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


def _shapes(time: KernelTime, chosen: Bool) -> tuple[list[tuple[str, int]], list[int]]:
    """The inputs of most time, and those of their dimensions that are to blame; empty where none were
    recorded. The sizes of batches do not matter."""
    launch = time.kernels.launches(time.work)[chosen]
    found = time_by_shapes(time.host, launch, time.kernels.duration_ns[chosen])
    least = sum(ns for _, ns in found) / LEAST_OF_SHAPES
    heaviest = [(shapes, ns) for shapes, ns in found[:SHAPES_SHOWN] if ns > least]
    odd = {d for shapes, _ in heaviest for dims in matrices(shapes) for d in dims[-2:] if d % MULTIPLE}
    return [(one_line(shapes, 100), ns) for shapes, ns in heaviest], sorted(odd)


RULE = Rule("GD502", "unaligned_matmul", "Matrix products with unaligned dimensions", check)
