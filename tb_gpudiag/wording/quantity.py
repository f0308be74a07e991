"""A measured value with its unit: kept as a number for comparisons, printed the same way everywhere."""

from __future__ import annotations

from enum import Enum

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.wording.format import NO_BREAK, count, figures, nearest, share, size_bytes, time_ns


class Unit(Enum):
    """What a Quantity's value counts. The value is the unit's name on the wire."""

    NS = "ns"
    BYTES = "bytes"
    SHARE = "share"  # 0 to 1
    COUNT = "count"
    MEAN = "mean"  # a count, averaged
    RATIO = "ratio"  # times as much
    GB_PER_S = "GB/s"
    TFLOPS = "TFLOP/s"
    FLOP_PER_BYTE = "FLOP/B"


@dataclass(frozen=True)
class Quantity:
    """A number and its unit. `noun` names what a count counts, `suffix` follows the printed value."""

    value: float
    unit: Unit
    suffix: str = ""
    noun: str = ""
    plural: str = ""

    def __str__(self) -> str:
        """The value as users read it, such as `12.3 ms of the step window`."""
        text = self._formatted()
        return f"{text} {self.suffix}" if self.suffix else text

    def _formatted(self) -> str:
        if self.unit is Unit.NS:
            return time_ns(self.value)
        if self.unit is Unit.BYTES:
            return size_bytes(self.value)
        if self.unit is Unit.SHARE:
            return share(self.value)
        if self.unit is Unit.COUNT:
            return count(nearest(self.value), self.noun, self.plural)
        if self.unit is Unit.MEAN:
            return figures(self.value)
        if self.unit is Unit.RATIO:
            return f"{figures(self.value)}×"
        return f"{figures(self.value)}{NO_BREAK}{self.unit.value}"


def duration(nanoseconds: float, suffix: str = "") -> Quantity:
    """A time: `duration(12_300_000, "per step")` prints as `12.3 ms per step`."""
    return Quantity(float(nanoseconds), Unit.NS, suffix)


def size(number_of_bytes: float, suffix: str = "") -> Quantity:
    """An amount of memory or data."""
    return Quantity(float(number_of_bytes), Unit.BYTES, suffix)


def share_of(part: float, whole: float, suffix: str = "") -> Quantity:
    """A part of a whole: `share_of(1, 4, "of the step window")` prints as `25.0% of the step window`."""
    return Quantity(part / whole if whole > 0 else 0.0, Unit.SHARE, suffix)


def number(value: float, noun: str = "", plural: str = "", suffix: str = "") -> Quantity:
    """A count: `number(3, "call")` prints as `3 calls`."""
    return Quantity(float(value), Unit.COUNT, suffix, noun, plural)


def per_step(total: int, steps: int) -> tuple[Quantity, ...]:
    """A count averaged over the recorded steps, as a detail of evidence; empty without several."""
    return (number(total / steps, suffix="per step"),) if steps > 1 else ()


def mean(value: float, suffix: str = "on average") -> Quantity:
    """A count averaged over several things: `mean(1.1)` prints as `1.10 on average`."""
    return Quantity(float(value), Unit.MEAN, suffix)


def ratio(value: float, suffix: str = "") -> Quantity:
    """How many times as much: `ratio(2.5)` prints as `2.50×`."""
    return Quantity(float(value), Unit.RATIO, suffix)


def bandwidth(gigabytes_per_second: float, suffix: str = "") -> Quantity:
    """A rate of data in GB/s (10⁹ bytes)."""
    return Quantity(float(gigabytes_per_second), Unit.GB_PER_S, suffix)


def throughput(tflops: float, suffix: str = "") -> Quantity:
    """A rate of arithmetic in TFLOP/s."""
    return Quantity(float(tflops), Unit.TFLOPS, suffix)


def intensity(operations_per_byte: float, suffix: str = "") -> Quantity:
    """An arithmetic intensity in FLOP per byte."""
    return Quantity(float(operations_per_byte), Unit.FLOP_PER_BYTE, suffix)
