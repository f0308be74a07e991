"""How fast pinned memory is copied between host and GPU: as the trace shows it, else by the PCIe link."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import Bool, Float64
from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.core.transfers import Transfers

LEAST_FOR_SPEED: Final = 1 << 20
"""A pinned copy of fewer bytes does not reach the link's speed."""

# GB/s of 16 lanes in one direction, of what PCIe 3.0, 4.0 and 5.0 state 16, 32 and 63: what large copies
# reach at best. On an H200, 134 MB take 2.4 ms.
_GENERATION_3, _GENERATION_4, _GENERATION_5 = 13.0, 26.0, 55.0
_BY_CAPABILITY: Final = {7: _GENERATION_3, 8: _GENERATION_4}  # later ones have the fifth
_BY_ARCHITECTURE: Final = {"gfx90a": _GENERATION_4}

SLOWEST_LINK: Final = 0.25
"""Share of that which slow links give: of six public recordings with large pinned copies, those of one
direction reach 0.25 to 0.45 of it, and where both directions copy at once, 0.19 and 0.33."""


def pinned_rates(transfers: Transfers, direction: Bool, gpu: DeviceProperties) -> tuple[float, float]:
    """Return the slowest and the fastest rate, in bytes per ns, at which pinned memory is copied in this
    direction: that of the trace's own large copies, if it has any. direction: mask of copies, shape (t,)."""
    duration_ns = transfers.end_ns - transfers.start_ns
    large = direction & ~transfers.pageable & (transfers.bytes >= LEAST_FOR_SPEED) & (duration_ns > 0)
    rates: Float64 = transfers.bytes[large] / duration_ns[large]
    if len(rates):
        median = float(np.median(rates))
        return median, median
    major = gpu.compute_capability[0] if gpu.compute_capability else 0
    fastest = min(
        _BY_CAPABILITY.get(major, _GENERATION_5), _BY_ARCHITECTURE.get(gpu.architecture, _GENERATION_5)
    )
    return SLOWEST_LINK * fastest, fastest
