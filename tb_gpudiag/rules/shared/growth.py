"""Growth: whether a device's memory grows for good, as a probability.

What a recording shows of growing memory is a row of figures (`FEATURES`). A logistic model, fitted to
labelled loops, makes one probability of them. Its weights are in growth.json, which `make fit` writes: a
wrong answer is mended by another labelled loop and a new fit. Recordings show different things, so each kind
of recording (`Growth.shows`) has weights of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Literal

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.leak_causes import Explained, causes_of
from tb_gpudiag.rules.shared.usual_causes import GRAPH
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.wording.quantity import duration, size

# Jobs keep a number or two per step on purpose. 4 KiB per step are 4 GiB after a million steps.
LEAST_BYTES_PER_STEP = 4 * 2**10

# Not counting the first step.
FEWEST_STEPS = 2

# How likely it is that what one pass keeps is a leak: nothing shows whether it repeats.
UNKNOWN = 0.3

# A plateau rises in its second half at less than this share of its rate.
LATER = 0.5

# What speaks against a leak makes the odds of one at least three times smaller.
AGAINST = -1.0

# Sizes that rise so often one after the other do so by chance once in 120 times.
FEWEST_RISES = 4

# Who takes entries out as often as this one adds them, within a quarter, keeps a container's size.
AS_OFTEN = 0.75

# Without steps, a rate holds for about as long as it was seen: a forward pass of 0.1 s says nothing about an
# hour.
LEAST_SECONDS = 10.0

FloorState = Literal["rising", "level", "plateau", "falling", "unclear"]

TENSORS, ALL_FREES, NEWER_FREES = "tensors noted", "all frees", "frees of newer memory"
"""What a recording shows of what goes. torch's CPU profiler drops frees of memory that was allocated before
the recording, and NotingTensors notes which tensors went."""


def growth_of(memory: DeviceMemory) -> Growth | None:
    """Return what grows on a device; None with too few steps to tell."""
    trend = memory.trend
    return Growth(memory, trend) if trend is not None and trend.steps >= FEWEST_STEPS else None


class Growth:
    """What grows on a device: its floors, and the sites that raise them.

    rate: bytes per step (or second, see Periods.unit): the most of what the floor, sites and notes say.
    kept: as the sites say.
    """

    def __init__(self, memory: DeviceMemory, trend: Trend) -> None:
        self.memory, self.trend = memory, trend
        self.sites = memory.sites or memory.steady_sites
        self.kept = sum(site.per_unit for site in self.sites)
        nodes = memory.others_per_step if memory.nodes_per_step else 0.0
        self.rate = max(1.0, trend.per_unit, self.kept, memory.steady_per_step, nodes)

    def share(self, of: Callable[[GrowingSite], float]) -> float:
        """Return the mean of a figure of the sites, weighted by what each keeps; 0 without sites."""
        return float(sum(site.per_unit * of(site) for site in self.sites) / max(1.0, self.kept))

    def of_rate(self, rate: float) -> float:
        """Return a rate as a share of `rate`, -1 to 1."""
        return float(np.clip(rate / self.rate, -1, 1))

    @cached_property
    def causes(self) -> list[Explained]:
        if self.memory.nodes_per_step and not self.sites:
            return [Explained(GRAPH, [])]
        return causes_of(self.sites, self.memory)

    @cached_property
    def graphs(self) -> list[GrowingSite]:
        """Sites that a retained graph explains."""
        return [site for part in self.causes if part.cause is GRAPH for site in part.sites]

    @property
    def repeats(self) -> bool:
        """Whether the recording shows that what grows repeats: it has steps, or lines outside of the model
        keep most of it. The layers of one forward pass keep more and more, too."""
        own_code = (Phase.UNKNOWN, Phase.INPUT, Phase.FORWARD)
        outside = self.share(
            lambda site: site.frame is not None and not site.module and site.phase in own_code
        )
        return self.trend.unit == "step" or (outside > 0.5 and self.memory.failure is None)

    @property
    def unseen_frames(self) -> list[Frame]:
        """Functions that were noted to hold what grows."""
        return [frame for level in self.memory.noted_holder.frames for frame in level]

    @property
    def least(self) -> float:
        """LEAST_BYTES_PER_STEP, or what that is per second where windows of time replace the steps."""
        periods = self.memory.floors.periods
        seconds = 1.0 if periods.unit == "step" else max(1e-9, float(periods.at[1] - periods.at[0]))
        return LEAST_BYTES_PER_STEP / seconds

    @property
    def per_unit(self) -> float:
        """How fast memory grows: what the sites keep, as far as the floor's slope allows for it. As many of
        their tensors as went are not counted, where that was noted."""
        net = self.share(_net) * self.kept
        if not self.sites:
            return self.rate
        low, high = self.trend.low, self.trend.high
        return net if net < self.kept or low <= 0 else float(np.clip(net, low, high))

    @property
    def shows(self) -> str:
        """What the recording shows of what goes."""
        if self.memory.is_noted:
            return TENSORS
        return NEWER_FREES if self.memory.misses_old_frees else ALL_FREES

    @cached_property
    def probability(self) -> float:
        """How often growth that looked like this was a leak, 0 to 1."""
        if self.per_unit < self.least:
            return 0.0
        model = _models()[self.shows]
        value = model["bias"] + sum(model["weights"][name] * self.features[name] for name in model["weights"])
        return float(1 / (1 + np.exp(-value))) if self.repeats else UNKNOWN

    @cached_property
    def features(self) -> Mapping[str, float]:
        return {name: float(feature.of(self)) for name, feature in FEATURES.items()}

    @property
    def doubt(self) -> str:
        """What else it may be: what speaks most against a leak, compared with usual leaks."""
        model = _models()[self.shows]
        against = {
            name: weight * (self.features[name] - model["usual"][name])
            for name, weight in model["weights"].items()
        }
        most = min(against, key=lambda name: against[name])
        return FEATURES[most].doubt if against[most] < AGAINST else _NOT_SHOWN[self.shows]


@lru_cache(maxsize=1)
def _models() -> Mapping[str, Any]:
    return json.loads(resources.files(__package__).joinpath("growth.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Feature:
    """of: the figure. doubt: what is no leak and looks like it, if the figure speaks against one."""

    of: Callable[[Growth], float]
    doubt: str


def _changes(growth: Growth) -> Int64:
    """By how much each floor is above the one before."""
    floors = growth.memory.floors
    return np.diff(floors.bytes[~floors.excused])


def _quiet(growth: Growth) -> float:
    """Share of the steps at the end in which the floor did not rise."""
    change = _changes(growth)
    rose = np.flatnonzero(change >= min(growth.least, LEAST_BYTES_PER_STEP))
    return 1 - (int(rose.max(initial=-1)) + 1) / max(1, len(change))


def _explained(growth: Growth) -> float:
    """Share of the growth that sites keep; without addresses, which show sites, that the floor rises by at
    least."""
    paired = growth.memory.allocations.paired
    return growth.of_rate(growth.kept if paired else max(0.0, growth.trend.low))


def _taken(site: GrowingSite) -> bool:
    """Whether calls take as many entries out of its container."""
    held = site.holder
    if held is None:
        return False
    taken = max(held.removed, held.removed_elsewhere) if held.direct else held.removed
    return taken >= AS_OFTEN * min(held.added, site.count)


def _fills_deque(site: GrowingSite) -> bool:
    """Whether a deque receives it, and no call takes anything out of one."""
    held = site.holder
    if held is None or held.type != "deque":
        return False
    return held.direct and not held.removed + held.removed_elsewhere


def _net(site: GrowingSite) -> float:
    """Share of what a site keeps by which tensors became more: the rest of them replaced others."""
    return min(1.0, site.noted.high / site.noted.held) if site.noted.held else 1.0


def _steady(growth: Growth) -> float:
    """At which share of its rate memory was noted to grow since the job began. In a job of a few steps, half
    of that in the recording."""
    memory = growth.memory
    return growth.of_rate(memory.steady_per_step if memory.has_history else memory.recorded_per_step / 2)


def _is_limited(site: GrowingSite) -> bool:
    return site.noted.holder.limit > 0


_FILLS = "a cache that is still filling"
_FULL = "a full buffer that drops its oldest entries"
_CLEARED = "a list that is cleared now and then"
_BATCHES = "batches of changing sizes"

_NOT_SHOWN = {TENSORS: _CLEARED, ALL_FREES: _FILLS, NEWER_FREES: _FULL}
"""What else growth may be that looks like a leak in every figure."""

FEATURES: Mapping[str, Feature] = {
    "quiet": Feature(_quiet, _FILLS),
    "explained": Feature(_explained, _BATCHES),
    "later": Feature(lambda growth: growth.of_rate(growth.trend.later), _FILLS),
    "fell": Feature(lambda growth: growth.share(lambda site: site.fell), _CLEARED),
    "uneven": Feature(
        lambda growth: growth.share(lambda site: site.replaced and site.rose < FEWEST_RISES), _BATCHES
    ),
    "history": Feature(
        lambda growth: growth.share(lambda site: site.in_optimizer),
        "an optimizer's history, as L-BFGS fills it (history_size)",
    ),
    "taken": Feature(lambda growth: growth.share(_taken), _FULL),
    "deques": Feature(
        lambda growth: growth.share(_fills_deque),
        "a deque that drops its oldest entries once it is full (maxlen)",
    ),
    "steady": Feature(_steady, _CLEARED),
    "limited": Feature(
        lambda growth: growth.share(_is_limited), "a container with a limit that is not full yet"
    ),
    "nodes": Feature(lambda growth: min(1.0, growth.memory.nodes_per_step / 10), _FULL),
}
"""Figures of growth, and what speaks against a leak if a figure does."""


def floor_state(memory: DeviceMemory) -> FloorState | None:
    """Say how the floors of the steps go; None with too few steps to tell."""
    growth = growth_of(memory)
    if growth is None:
        return None
    trend, least = growth.trend, growth.least
    states: tuple[tuple[FloorState, bool], ...] = (
        ("falling", trend.high < 0 and -trend.per_unit >= least),
        ("level", max(trend.per_unit, trend.earlier) < least),
        ("plateau", trend.later < LATER * max(trend.per_unit, least)),
        ("rising", trend.low > 0),
    )
    return next((state for state, holds in states if holds), "unclear")


def until_full(memory: DeviceMemory) -> float:
    """Return the steps or seconds (the trend's unit) until the peak, which rises with the floor, reaches the
    capacity; 0 if memory does not grow, or if the capacity is not known."""
    growth = growth_of(memory)
    if growth is None or not memory.capacity_bytes:
        return 0.0
    trend = growth.trend
    if min(trend.low, trend.later) <= 0 and growth.probability < 0.5:
        return 0.0
    if trend.unit == "second" and trend.end_ns - trend.start_ns < LEAST_SECONDS * 1e9:
        return 0.0
    return max(0, memory.capacity_bytes - memory.peak.allocated_bytes) / growth.per_unit


def growth_text(trend: Trend, per_unit: float) -> str:
    """`7 MiB per step`. Without steps, what was seen: `7 MiB in 40 ms`."""
    if trend.unit == "step":
        return str(size(per_unit, f"per {trend.word}"))
    seen_ns = trend.end_ns - trend.start_ns
    return f"{size(per_unit * seen_ns / 1e9)} in {duration(seen_ns)}"
