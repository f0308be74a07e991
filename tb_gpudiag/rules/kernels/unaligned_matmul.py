"""GD502: matmuls with dimensions that tensor cores cannot load efficiently."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.operator_inputs import matrices
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.operator_costs import OperatorKind, time_by_shapes
from tb_gpudiag.facts.kernels.roofline import Roofline
from tb_gpudiag.rules.answer import Evidence, Finding
from tb_gpudiag.rules.rule import GpuRule, page_fixes, speaks_from
from tb_gpudiag.rules.shared.kernel_time import KernelPart, KernelTime, of_kernels
from tb_gpudiag.rules.shared.roofline_evidence import MULTIPLE, unaligned_sizes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.quantity import duration, number

FIXES = page_fixes(__name__)

# In public traces such kernels take 10 to 19% of the window if a dimension is odd, else less than 1%.
LEAST_SHARE = levels.NOTICEABLE

# In a public trace (attention over 5,185 tokens) they ran at a fifth of the rate of its aligned matmuls. Part
# of the gap is memory traffic, which alignment does not change.
MOST_GAIN = 0.75

SHAPES_SHOWN = 3

# Inputs with less than a twentieth of the time are not worth showing.
LEAST_OF_SHAPES = 20


def _unaligned(time: KernelTime) -> Bool:
    """Mask of kernels whose names say that they load rows element by element, 16-bit matmuls that could not
    use tensor cores at all, and Tensile's kernels for any size on unaligned ones."""
    kernels = time.kernels
    return kernels.unaligned | _off(time) | _takes_unaligned_sizes(time.device.roofline, kernels)


def _off(time: KernelTime) -> Bool:
    """Mask of 16-bit matmuls off the tensor cores. A convolution is off them because of its channels, which
    are three in images, or their layout."""
    matmuls = time.kernels.matrix & (time.kernels.family != Family.CONVOLUTION)
    return matmuls & np.isin(time.kernels.arithmetic, _off_tensor_cores(time.device))


def _finding(part: KernelPart) -> Finding:
    time, chosen, cost_ns = part.time, part.chosen, part.free.total
    off = _off(time)
    shapes, odd = _shapes(time, chosen)
    evidence = [
        time.evidence("Kernels for unaligned rows", cost_ns),
        Evidence("Kernels", number(int(chosen.sum()))),
    ]
    if off.any():
        evidence.append(Evidence("Without tensor cores", duration(time.total_ns(off))))
    if odd:
        # Sizes of a shape, not measurements: text.
        evidence.append(Evidence(f"Dimensions not a multiple of {MULTIPLE}", ", ".join(map(str, odd))))
    evidence += [Evidence(f"Inputs {shape}", duration(ns)) for shape, ns in shapes]
    return Finding(
        title=f"Matmuls with unaligned dimensions take {part.of_window} of the time",
        summary="Tensor cores load 16 bytes at a time. If the length of a row is not a multiple of that, the "
        "library falls back to kernels that load element by element (their names end in align1 or align2), "
        "and the tensor cores wait.",
        fix=FIXES["pad"],
        removable=time.saving_above_peaks(chosen, cost_ns * MOST_GAIN),
        evidence=evidence,
        **part.where,
    )


def _off_tensor_cores(device: DeviceFacts) -> list[Arithmetic]:
    """What alignment brings to the tensor cores. They take bf16 from Ampere on: before, GD501 is about it."""
    if device.multiplies_bf16_as_fp32:
        return [Arithmetic.HALF_ON_FP32_CORES]
    return [Arithmetic.HALF_ON_FP32_CORES, Arithmetic.BF16_ON_FP32_CORES]


def _takes_unaligned_sizes(roofline: Roofline, kernels: Kernels) -> Bool:
    """Mask of Tensile's kernels for any size whose matmul has rows that are not aligned."""
    if not kernels.any_size.any():
        return kernels.any_size
    odd = [found for found in roofline.of(OperatorKind.MATMUL) if unaligned_sizes(*found.sizes[2:])]
    return kernels.any_size & roofline.kernels_of(odd)


def _shapes(time: KernelTime, chosen: Bool) -> tuple[list[tuple[str, int]], list[int]]:
    """Return the input shapes that take the most time, and their unaligned dimensions.

    Both are empty without recorded shapes. Batch dimensions do not matter.
    """
    launch = time.kernels.origin[chosen]
    found = time_by_shapes(time.facts.host, launch, time.kernels.duration_ns[chosen])
    least = sum(ns for _, ns in found) / LEAST_OF_SHAPES
    heaviest = [(shapes, ns) for shapes, ns in found[:SHAPES_SHOWN] if ns > least]
    odd = {d for shapes, _ in heaviest for dims in matrices(shapes) for d in dims[-2:] if d % MULTIPLE}
    return [(one_line(shapes, 100), ns) for shapes, ns in heaviest], sorted(odd)


_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(_unaligned),
    lambda part: f"matmuls with unaligned rows take {part.of_window} of the step window",
    _finding,
)

RULE = GpuRule("GD502", "unaligned_matmul", "Matmuls with unaligned dimensions", _CHECK)
