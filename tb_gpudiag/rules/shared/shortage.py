"""A shortage of memory: one judgement of why a request failed, or a peak leaves little room, and of what
helps. GD401's leaks and GD403's pieces are rows of it, and GD402 says it.

A candidate is something that the job could do without: rows of the allocations alive. A remedy is a fix on
the page of GD402 or GD403, with when it applies. A new case is a row of one of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import starmap

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.earlier_models import find_earlier_models, find_loaded
from tb_gpudiag.facts.memory.lost_passes import find_lost_passes
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.ways import WayKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Fix
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.rules.shared.leak import leaks_at_failure
from tb_gpudiag.rules.shared.leak_causes import Explained
from tb_gpudiag.rules.shared.leak_holder import keeping_frame
from tb_gpudiag.rules.shared.out_of_memory import FailureCause, cause_of
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.frames import Frame, after_word
from tb_gpudiag.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.vocabulary.torch_frames import CHECKPOINT
from tb_gpudiag.wording.quantity import size

FIXES = page_fixes("tb_gpudiag.rules.memory.memory_fragmentation") | page_fixes(
    "tb_gpudiag.rules.memory.memory_peak"
)

# A kind of memory that makes up a third of the peak dominates it: less of it lowers the peak at once.
MAIN_SHARE = 0.33

# What is a tenth of the memory in use is worth a change of the job, if the request fits without it.
WORTH_SHARE = levels.SIZEABLE

# A pass that failed in the middle needs more than it had: less than a tenth of room in expandable segments is
# soon used up. Where nobody knows how much is to come, a fifth is enough.
ROOM_SHARE, MUCH_ROOM_SHARE = levels.SIZEABLE, levels.LARGE

MOST_WASTES = 2
"""The two largest are enough to begin with."""


@dataclass(frozen=True, eq=False)
class Waste:
    """What the job could do without. name: of its fix. frame: the line that calls a model, where that makes
    it. fits: whether the request would fit then, replayed; None where that cannot be told."""

    name: str
    bytes: int
    frame: Frame | None
    fits: bool | None


def _lost_passes(allocations: Allocations) -> tuple[Int64, Frame | None]:
    """Graphs of forward passes that no backward pass uses."""
    lost = find_lost_passes(allocations, int(allocations.failures[-1]))
    return (lost.own, lost.frame) if lost is not None else (np.zeros(0, np.int64), None)


def _old_gradients(allocations: Allocations) -> Int64:
    """Gradients of the last step that a forward pass finds."""
    position = int(allocations.failures[-1])
    alive = allocations.alive(position)
    forward = allocations.context.phase[allocations.curve.event[position]] == Phase.FORWARD
    return alive[forward & (allocations.kind[alive] == KINDS.index(MemoryKind.GRADIENT))]


_CANDIDATES: Mapping[str, Callable[[Allocations], tuple[Int64, Frame | None]]] = {
    "inference": _lost_passes,
    "models": lambda allocations: (find_earlier_models(allocations), None),
    "load": lambda allocations: (find_loaded(allocations), None),
    "set_to_none": lambda allocations: (_old_gradients(allocations), None),
}
"""Indices of the allocations alive that the job could do without, and the line that calls the model, by the
name of the fix."""


class Shortage:
    """What fills the memory of one device when a request fails, or at the peak, and how the job computes."""

    def __init__(self, memory: DeviceMemory, facts: Facts) -> None:
        self.memory, self.facts = memory, facts
        self.peak = memory.failure.held if memory.failure is not None else memory.peak

    @cached_property
    def cause(self) -> FailureCause | None:
        """Why the request failed; None where none has."""
        return cause_of(self.memory, self.memory.failure) if self.memory.failure is not None else None

    @cached_property
    def wastes(self) -> list[Waste]:
        """What the job could do without that is worth a change, most bytes first."""
        if self.memory.failure is None or not self.memory.allocations.paired:
            return []
        found = []
        for name, candidate in _CANDIDATES.items():
            own, frame = candidate(self.memory.allocations)
            held = int(self.memory.allocations.bytes[own].sum())
            fits = self.memory.fits_without(own) if held else None
            if held >= max(1, (WORTH_SHARE if fits else MAIN_SHARE) * self.peak.allocated_bytes):
                found.append(Waste(name, held, frame, fits))
        return sorted(found, key=lambda waste: -waste.bytes)

    @cached_property
    def leaks(self) -> list[Explained]:
        """The leaks that filled the memory, unless they are what the job could do without: models with their
        optimizers look like graphs with gradients."""
        leaks = leaks_at_failure(self.memory)
        held = sum(leak.bytes for leak in leaks)
        whole = max(self.memory.capacity_bytes, self.memory.peak.allocated_bytes)
        needless = any(waste.fits and 2 * waste.bytes >= held for waste in self.wastes)
        return leaks if held >= WORTH_SHARE * whole and not needless else []

    @property
    def trains(self) -> bool:
        """Whether a backward pass is recorded."""
        return bool((self.memory.allocations.phase == Phase.BACKWARD).any())

    @property
    def grows(self) -> bool:
        """Whether nobody knows how much is to come: the first pass keeps its results for a backward pass, or
        a data set is being made."""
        first = not self.trains and self.peak.phase is Phase.FORWARD
        return self.is_data or (first and self.activations >= MAIN_SHARE)

    @cached_property
    def has_no_model(self) -> bool:
        """Whether a snapshot's stacks show that no module was called, and no pass of a training came."""
        allocations = self.memory.allocations
        trains = np.isin(allocations.phase, (Phase.BACKWARD, Phase.OPTIMIZER)).any()
        return bool(allocations.memory.stacks) and not trains and not allocations.in_module.any()

    def share(self, *kinds: MemoryKind) -> float:
        """Share of what is held that these kinds make up, 0 to 1."""
        return sum(self.peak.kinds.get(kind, 0) for kind in kinds) / max(1, self.peak.allocated_bytes)

    def is_mostly(self, *kinds: MemoryKind) -> bool:
        return self.share(*kinds) >= MAIN_SHARE

    @property
    def gradients(self) -> float:
        """Share of the gradients of weights, which are no larger than these. A backward pass that fails holds
        gradients of activations as well."""
        return min(self.share(MemoryKind.GRADIENT), self.share(MemoryKind.PARAMETER, MemoryKind.BEFORE))

    @property
    def activations(self) -> float:
        """Share of activations and their gradients."""
        return self.share(MemoryKind.ACTIVATION, MemoryKind.GRADIENT) - self.gradients

    @property
    def is_of_activations(self) -> bool:
        return self.activations >= MAIN_SHARE

    @property
    def is_of_model(self) -> bool:
        """Weights and what belongs to them, and no more activations. In a training, memory from before the
        recording is mostly that."""
        known = self.share(MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE) + self.gradients
        known += self.share(MemoryKind.BEFORE) if self.facts.job.training is True else 0
        return known >= max(MAIN_SHARE, self.activations)

    @property
    def is_data(self) -> bool:
        """No model was called, and none is most of it."""
        made = (MemoryKind.TEMPORARY, MemoryKind.UNKNOWN, MemoryKind.INPUT)
        return self.has_no_model and self.is_mostly(*made) and not self.is_of_model

    @property
    def infers(self) -> bool:
        """What forward passes made dominates, and little is kept for a backward pass."""
        made = [MemoryKind.TEMPORARY] + ([] if self.trains else [MemoryKind.UNKNOWN])
        forward = self.peak.phase is Phase.FORWARD and self.is_mostly(*made)
        return forward and self.share(MemoryKind.ACTIVATION) < WORTH_SHARE and not self.has_no_model

    @property
    def attends(self) -> bool:
        device = self.facts.device
        return device is not None and len(device.unfused_attention.softmax) > 0

    @property
    def computes_in_fp32(self) -> bool:
        """Whether some matmuls run in FP32."""
        if self.facts.device is None:
            return False
        kernels = self.facts.gpu.kernels
        return bool((kernels.matrix & (kernels.arithmetic == Arithmetic.FP32_CORES)).any())

    @property
    def recomputes(self) -> bool:
        """Whether the job does so already, or it would not make the request fit, replayed: there are no
        blocks, or few, or most is elsewhere, such as the scores of a large vocabulary."""
        fits = {way.kind: way.may_fit for way in self.memory.ways}
        helps = fits.get(WayKind.CHECKPOINT, not fits)
        return not helps or any(map(CHECKPOINT.search, self.memory.allocations.memory.stacks))


_OF_PEAK: tuple[tuple[str, Callable[[Shortage], bool]], ...] = (
    ("attention", lambda s: s.attends and s.is_mostly(MemoryKind.ACTIVATION, MemoryKind.TEMPORARY)),
    ("checkpoint", lambda s: s.is_of_activations and not s.recomputes),
    ("precision", lambda s: s.is_of_activations and s.computes_in_fp32),
    ("accumulate", lambda s: s.is_of_activations),
    ("no_graph", lambda s: s.is_of_activations and s.peak.phase is Phase.FORWARD and not s.trains),
    (
        "set_to_none",  # of a failure, a replay says whether they matter
        lambda s: (
            s.cause is None and s.peak.phase is Phase.FORWARD and s.share(MemoryKind.GRADIENT) >= WORTH_SHARE
        ),
    ),
    ("fused_optimizer", lambda s: s.peak.phase is Phase.OPTIMIZER and s.is_mostly(MemoryKind.TEMPORARY)),
    ("inference", lambda s: s.infers),
    ("shard", lambda s: s.is_of_model),
    ("before", lambda s: s.is_mostly(MemoryKind.BEFORE) and not s.is_of_model),
    ("inputs", lambda s: s.is_data or s.is_mostly(MemoryKind.INPUT)),
)
"""What held the memory, and what helps then."""

_OF_CAUSE = {
    FailureCause.GIANT: "giant",
    FailureCause.POOLS: "pool",
    FailureCause.BLOCKS: "pool",
    FailureCause.LIMIT: "others",
}


@dataclass(frozen=True)
class Remedies:
    """What helps, best first. saves_bytes: what it saves; None where that is not known."""

    fixes: Sequence[Fix]
    saves_bytes: int | None = None

    @property
    def arranges(self) -> bool:
        """Whether the pieces of what is free, if they were joined or shared, are part of it: GD403."""
        return any(FIXES[name] in self.fixes for name in ("expandable", "pad", "pool"))


def remedies(short: Shortage) -> Remedies:
    """Return what decides: pieces that leave room; leaks; what else made the request fail; what the job could
    do without, if the request fits then; pieces, if nothing shows how much room they leave; the rest."""
    arranges, room = short.cause is FailureCause.FRAGMENTED, short.memory.expandable_room
    failure, enough = short.memory.failure, max(ROOM_SHARE, MUCH_ROOM_SHARE * short.grows)
    arrangement = [FIXES["pad" if failure is not None and failure.expandable else "expandable"]]
    if arranges and room is not None and room >= enough:
        return Remedies(arrangement)
    if short.leaks:  # counts as GD401's cost
        return Remedies([*starmap(_of_leak, enumerate(short.leaks))], 0)
    if short.cause in _OF_CAUSE:
        return Remedies([FIXES[_OF_CAUSE[short.cause]]])
    if needless := [waste for waste in short.wastes if waste.fits is not False][:MOST_WASTES]:
        return Remedies([*map(_of_waste, needless)], sum(waste.bytes for waste in needless))
    fixes = [*map(_of_waste, short.wastes[:MOST_WASTES])]
    fixes += [FIXES[name] for name, applies in _OF_PEAK if applies(short)]
    if arranges and room is None and not short.wastes:
        fixes = arrangement
    return Remedies(fixes or (arrangement if arranges else [FIXES["accumulate"]]))


def _of_waste(waste: Waste) -> Fix:
    fix = FIXES[waste.name]
    what = f"What is called{after_word(waste.frame)}" if waste.frame is not None else "That"
    return replace(fix, text=f"{fix.text} {what} keeps {size(waste.bytes)}.")


def _of_leak(number: int, leak: Explained) -> Fix:
    frame = keeping_frame(leak) or leak.sites[0].frame
    if 2 * sum(site.bytes for site in leak.sites if site.phase is Phase.PARAMETER) > leak.bytes:
        return FIXES["models"]
    begin = "Then" if number else "First"
    text = f"{begin} fix the leak that filled the memory{after_word(frame)}, see GD401. {leak.cause.fix}"
    return Fix(text, leak.cause.code)
