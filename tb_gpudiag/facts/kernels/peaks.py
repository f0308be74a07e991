"""Peaks of GPUs: dense matmuls in TFLOP/s and memory bandwidth in TB/s, as their makers state them.

All matmul rates are dense: where a data sheet states the rate with sparsity, half of it. FP64 and FP32 are
the rates of matmuls, on tensor or matrix cores where these take the format. GeForce: half precision and FP8
with FP32 accumulation, as PyTorch has it. Laptops: the highest clock of the range that NVIDIA states. AMD's
MI200 series: rates of one of the two dies of a card, because each is a device of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tb_gpudiag.facts.core.device_properties import LEAST_UNITS, DeviceProperties
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import rows_of


@dataclass(frozen=True)
class Peaks:
    """TFLOP/s of dense matmuls (0 where the GPU does not have the format), and TB/s of memory.

    assumed: whose peaks these are if the device's name is not listed, "" if it is.
    matrix_fp32: matrix cores take FP32 as it is, so that kernels on them are not necessarily TF32.
    """

    fp64: float
    fp32: float
    tf32: float
    half: float
    fp8: float
    bandwidth: float
    assumed: str = ""
    matrix_fp32: bool = False

    @property
    def bf16(self) -> float:
        """Volta and Turing, which have no TF32 either, multiply bf16 as FP32."""
        return self.half if self.tf32 or self.matrix_fp32 else self.fp32


@dataclass(frozen=True)
class _Series:
    """How the rates of a series of cards relate to their FP32 rate: a white paper states them for one
    multiprocessor and clock, and data sheets of each card mostly FP32 and one rate of the tensor cores."""

    fp64: float
    tf32: float
    half: float
    fp8: float

    def card(self, fp32: float, bandwidth: float) -> Peaks:
        """Return the peaks of the card with these: as data sheets have them, or cores × 2 × boost clock."""
        fp64, tf32, half, fp8 = (
            round(share * fp32, 2) for share in (self.fp64, self.tf32, self.half, self.fp8)
        )
        return Peaks(fp64, fp32, tf32, half, fp8, bandwidth)


# NVIDIA Turing (2018), Ampere GA102 (2021), Ada (2022) and RTX Blackwell (2025) white papers. With FP32
# accumulation, GeForce cards have half the rate of workstation cards with the same chip.
_MADE: dict[str, Callable[..., Peaks]] = {
    "": Peaks,
    "matrix cores": partial(Peaks, matrix_fp32=True),
    "GeForce 20": _Series(1 / 32, 0, 4, 0).card,
    "Quadro RTX": _Series(1 / 32, 0, 8, 0).card,
    "GeForce 30": _Series(1 / 64, 1, 2, 0).card,
    "RTX A": _Series(1 / 64, 2, 4, 0).card,
    "GeForce 40": _Series(1 / 64, 1, 2, 4).card,
    "RTX Ada": _Series(1 / 64, 2, 4, 8).card,
}
_MADE |= {"GeForce 50": _MADE["GeForce 40"], "RTX PRO": _MADE["RTX Ada"]}


DEVICE_PEAKS: list[tuple[str, Peaks]] = []
LAPTOP_PEAKS: list[tuple[str, Peaks]] = []
_LISTS = {"card": DEVICE_PEAKS, "laptop": LAPTOP_PEAKS}
for _kind, _name, _series, *_rates in rows_of("peaks.tsv"):
    _LISTS[_kind].append((_name, _MADE[_series](*map(float, _rates))))

_LAPTOP = r"Laptop|Max-Q Design|Mobile"

# A part of a GPU (MIG) has the name of the whole, but not its bandwidth.
_PART = r"\bMIG\b"

# Unlisted names. NVIDIA: peaks of a GPU of that compute capability with this many multiprocessors, which
# scale with their number, and the least bandwidth of a card with that capability. So a kernel reaches at most
# the share of the peaks that is stated.
_CAPABILITIES: dict[tuple[int, int], tuple[int, Peaks]] = {
    (7, 0): (80, Peaks(7.0, 14.0, 0, 112, 0, 0.65)),  # V100-PCIE; Titan V's bandwidth
    (7, 5): (40, Peaks(0.25, 8.1, 0, 32.4, 0, 0.08)),  # T4, half of its tensor peak; MX450's bandwidth
    (8, 0): (108, Peaks(19.5, 19.5, 156, 312, 0, 0.933)),  # A100; A30's bandwidth
    (8, 6): (82, Peaks(0.56, 35.6, 35.6, 71, 0, 0.096)),  # RTX 3090; RTX A400's bandwidth
    (8, 9): (58, Peaks(0.47, 30.3, 30.3, 60, 121, 0.128)),  # L4, half of its tensor peaks; RTX 500 Ada
    (9, 0): (114, Peaks(51, 51, 378, 756, 1_513, 2.0)),  # H100 PCIe
    (10, 0): (148, Peaks(37, 75, 1_125, 2_250, 4_500, 8.0)),  # B200
    (10, 3): (148, Peaks(1.2, 75, 1_125, 2_250, 4_500, 8.0)),  # B300
    (12, 0): (170, Peaks(1.64, 104.8, 104.8, 209.5, 419, 0.32)),  # RTX 5090; RTX 5050
}

# AMD's architectures: the slowest listed GPU that has it.
_ARCHITECTURES = {"gfx90a": r"MI210", "gfx942": r"MI300A", "gfx950": r"MI350X"}


def peaks_of(device: DeviceProperties) -> Peaks | None:
    """Return the peaks of a device: by its name, or by its architecture or compute capability; None if the
    trace gives none of these, or if the device is a part of a GPU."""
    is_part = 0 < device.multiprocessors < LEAST_UNITS.get(device.architecture, 0)
    if re.search(_PART, device.name) or is_part:
        return None
    listed = LAPTOP_PEAKS if re.search(_LAPTOP, device.name, re.I) else DEVICE_PEAKS
    for name, peaks in listed:
        if re.search(name, device.name, re.I):
            return peaks
    return _of_architecture(device.architecture) or _of_capability(device)


def _of_architecture(architecture: str) -> Peaks | None:
    if architecture not in _ARCHITECTURES:
        return None
    name = _ARCHITECTURES[architecture]
    return replace(dict(DEVICE_PEAKS)[name], assumed=f"{name} ({architecture})")


def _of_capability(device: DeviceProperties) -> Peaks | None:
    if device.compute_capability not in _CAPABILITIES or not device.multiprocessors:
        return None
    number, peaks = _CAPABILITIES[device.compute_capability]
    share = device.multiprocessors / number
    major, minor = device.compute_capability
    return Peaks(
        peaks.fp64 * share,
        peaks.fp32 * share,
        peaks.tf32 * share,
        peaks.half * share,
        peaks.fp8 * share,
        peaks.bandwidth,
        f"{device.multiprocessors} multiprocessors of compute capability {major}.{minor}, least bandwidth",
    )
