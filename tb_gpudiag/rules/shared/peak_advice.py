"""Advice on a memory peak: by why an allocation failed, or else by what the peak consists of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.peak import Peak
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.waste import Waste
from tb_gpudiag.facts.memory.ways import WayKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.needed_memory import LEAST_ROOM_SHARE, ROOM_SHARE, may_fit_expandable
from tb_gpudiag.rules.shared.out_of_memory import FailureCause, cause_of
from tb_gpudiag.rules.shared.waste_advice import MAIN_SHARE, WORTH_SHARE, Advice, advice_on_waste, waste_of
from tb_gpudiag.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.vocabulary.torch_frames import CHECKPOINT

CODE = fix_code("tb_gpudiag.rules.memory.memory_peak")
FRAGMENTATION = fix_code("tb_gpudiag.rules.memory.memory_fragmentation")

# Gradients are as large as the weights. If they are a tenth of the peak in the forward pass, the job could
# have freed them before it.
GRADIENT_SHARE = 0.1

# With a fifth of the memory left in expandable segments, pieces are why a request fails, whatever is kept.
MUCH_ROOM_SHARE = 0.2

MOST_WASTES = 2
"""The two largest are enough to begin with."""


_ATTENTION = Advice(
    "Use fused attention: its memory does not grow quadratically with the sequence length.", CODE["attention"]
)
_CHECKPOINT = Advice(
    "Recompute the activations of the largest blocks in the backward pass (2 to 4 times less memory for "
    "about a third more compute).",
    CODE["checkpoint"],
)
_PRECISION = Advice("Compute in bf16, which halves the activations.", CODE["precision"])
_ACCUMULATE = Advice("Use smaller batches, and accumulate their gradients.", CODE["accumulate"])
_SET_TO_NONE = Advice(
    "Unless you accumulate gradients over several batches, free them before the next forward pass.",
    CODE["set_to_none"],
)
_FOREACH = Advice(
    "Temporaries of the optimizer step cause the peak: update in one fused kernel, or weight by weight.",
    CODE["fused_optimizer"],
)
KEEP_CACHE = Advice(
    "Remove torch.cuda.empty_cache(): the allocator empties its cache by itself where it must.",
    CODE["keep_cache"],
)
_BEFORE = Advice(
    "Free what is not needed any more before this point, such as results of earlier parts, or work in "
    "smaller parts. Record from the job's beginning, or a memory snapshot, to see what holds the memory.",
    CODE["before"],
)
_STATE = Advice("Shard weights, gradients and optimizer state across GPUs.", CODE["shard"])
_GIANT = Advice(
    "Look at the shapes at this line: [N, 1] and [N] broadcast to [N, N], and so do pairwise differences, "
    "one-hot codes and attention without a fused kernel. If the size is meant, compute it in parts.",
    CODE["giant"],
)
_POOL = Advice(
    "Capture all CUDA graphs into one shared pool, the largest first, and allocate tensors of other streams "
    "on the stream that uses them.",
    FRAGMENTATION["pool"],
)
OTHERS = Advice(
    "See what else is on the GPU, and whether the process is limited: an old process, a notebook, a second "
    "rank on the same GPU.",
    CODE["others"],
)
_EXPANDABLE = Advice(
    "Let segments grow in place so that freed blocks merge, and allocate what stays before what comes and "
    "goes.",
    FRAGMENTATION["expandable"],
)
_PAD = Advice("Segments are expandable already: request fewer different sizes.", FRAGMENTATION["pad"])
_INFERENCE = Advice(
    "Hardly anything is kept for a backward pass, so the batch size decides: use a smaller batch, and make "
    "sure that no autograd graph is recorded.",
    CODE["inference"],
)
_NO_BACKWARD = Advice(
    "The recording has no backward pass: if none is to come, run this under torch.inference_mode() instead, "
    "which keeps no activations.",
    "",
)
_DATA = Advice(
    "No model was called so far: what the GPU holds is data. Leave the data set in the host's memory, "
    "prepare it there, or in parts, and copy one batch at a time.",
    CODE["inputs"],
)
INPUTS = Advice(
    "Inputs are most of it: leave the data set in the host's memory, and copy one batch at a time, or use "
    "smaller batches.",
    CODE["inputs"],
)


@dataclass(frozen=True)
class _Composition:
    """What the peak consists of, and how the job computes."""

    peak: Peak
    facts: Facts
    memory: DeviceMemory

    @property
    def trains(self) -> bool:
        """Whether a backward pass is recorded."""
        return bool((self.memory.allocations.phase == Phase.BACKWARD).any())

    @property
    def needs_more(self) -> bool:
        """Whether a pass that keeps its results for a backward pass is the first one: how much is to come in
        it is not known."""
        first = not self.trains and self.peak.phase is Phase.FORWARD
        return first and self.activations >= MAIN_SHARE

    @property
    def has_no_model(self) -> bool:
        """Whether a snapshot's stacks show that no module was called, and no pass of a training came."""
        allocations = self.memory.allocations
        trains = np.isin(allocations.phase, (Phase.BACKWARD, Phase.OPTIMIZER)).any()
        return bool(allocations.memory.stacks) and not trains and not allocations.in_module.any()

    def share(self, *kinds: MemoryKind) -> float:
        """Share of the peak that these kinds make up, 0 to 1."""
        return sum(self.peak.kinds.get(kind, 0) for kind in kinds) / max(1, self.peak.allocated_bytes)

    @property
    def gradients(self) -> float:
        """Share of the gradients of weights, which are no larger than these. A backward pass that fails holds
        gradients of activations as well."""
        return min(self.share(MemoryKind.GRADIENT), self.share(MemoryKind.PARAMETER, MemoryKind.BEFORE))

    @property
    def activations(self) -> float:
        """Share of activations and their gradients."""
        return self.share(MemoryKind.ACTIVATION, MemoryKind.GRADIENT) - self.gradients

    def is_mostly(self, *kinds: MemoryKind) -> bool:
        return self.share(*kinds) >= MAIN_SHARE


def _has_unfused_attention(found: _Composition) -> bool:
    device = found.facts.device
    attends = device is not None and len(device.unfused_attention.softmax) > 0
    return attends and found.is_mostly(MemoryKind.ACTIVATION, MemoryKind.TEMPORARY)


def _is_activations(found: _Composition) -> bool:
    return found.activations >= MAIN_SHARE


def _may_need_no_graph(found: _Composition) -> bool:
    """Activations dominate, and no backward pass shows what they are for."""
    return found.peak.phase is Phase.FORWARD and not found.trains and _is_activations(found)


def _is_fp32_activations(found: _Composition) -> bool:
    """Activations dominate, and some matmuls run in FP32."""
    if found.facts.device is None or not _is_activations(found):
        return False
    kernels = found.facts.gpu.kernels
    return bool((kernels.matrix & (kernels.arithmetic == Arithmetic.FP32_CORES)).any())


def _is_old_gradients(found: _Composition) -> bool:
    """Gradients of the previous step are still allocated in the forward pass. Where it failed, a replay says
    whether they matter."""
    if found.memory.failure is not None:
        return False
    return found.peak.phase is Phase.FORWARD and found.share(MemoryKind.GRADIENT) >= GRADIENT_SHARE


def _is_optimizer_temporaries(found: _Composition) -> bool:
    return found.peak.phase is Phase.OPTIMIZER and found.is_mostly(MemoryKind.TEMPORARY)


def _is_inference(found: _Composition) -> bool:
    """What forward passes made dominates, and little is kept for a backward pass."""
    made = [MemoryKind.TEMPORARY] + ([] if found.trains else [MemoryKind.UNKNOWN])
    forward = found.peak.phase is Phase.FORWARD and found.is_mostly(*made)
    keeps = found.share(MemoryKind.ACTIVATION) >= WORTH_SHARE
    return forward and not keeps and not found.has_no_model


def _is_model_state(found: _Composition) -> bool:
    """Weights and what belongs to them, and no more activations. In a training, memory from before the
    recording is mostly that."""
    known = found.share(MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE) + found.gradients
    known += found.share(MemoryKind.BEFORE) if found.facts.job.training is True else 0
    return known >= max(MAIN_SHARE, found.activations)


def _is_from_before(found: _Composition) -> bool:
    """Most of it was allocated before the recording, and nothing shows what it is."""
    return found.is_mostly(MemoryKind.BEFORE) and not _is_model_state(found)


def _is_data(found: _Composition) -> bool:
    """No model was called, and none is most of it."""
    made = (MemoryKind.TEMPORARY, MemoryKind.UNKNOWN, MemoryKind.INPUT)
    return found.has_no_model and found.is_mostly(*made) and not _is_model_state(found)


_ADVICE: tuple[tuple[Callable[[_Composition], bool], Advice], ...] = (
    (_has_unfused_attention, _ATTENTION),
    (_is_activations, _CHECKPOINT),
    (_is_fp32_activations, _PRECISION),
    (_is_activations, _ACCUMULATE),
    (_may_need_no_graph, _NO_BACKWARD),
    (_is_old_gradients, _SET_TO_NONE),
    (_is_optimizer_temporaries, _FOREACH),
    (_is_inference, _INFERENCE),
    (_is_model_state, _STATE),
    (_is_from_before, _BEFORE),
    (_is_data, _DATA),
    (lambda found: found.is_mostly(MemoryKind.INPUT) and not _is_data(found), INPUTS),
)


_OF_CAUSE = {
    FailureCause.GIANT: [_GIANT],
    FailureCause.POOLS: [_POOL],
    FailureCause.BLOCKS: [_POOL],
    FailureCause.LIMIT: [OTHERS],
    FailureCause.OTHERS: [OTHERS],
    FailureCause.FRAGMENTED: [_EXPANDABLE],
}


_ARRANGE = ([_EXPANDABLE], [_PAD])


def _of_cause(memory: DeviceMemory) -> list[Advice]:
    """Return the advice that follows from why an allocation failed; empty where it follows from what held
    the memory."""
    if memory.failure is None:
        return []
    cause = cause_of(memory, memory.failure)
    if cause is FailureCause.FRAGMENTED and memory.failure.expandable:
        return [_PAD]
    return _OF_CAUSE.get(cause, [])


def advice_on(memory: DeviceMemory, peak: Peak, facts: Facts) -> list[Advice]:
    """Return the advice that fits the failure or the peak, at least one.

    First why it failed, where the request itself, another process or another pool is the reason; then what
    the job could do without; then how memory is arranged, if that leaves room; then what the rest is.
    """
    of_cause = _of_cause(memory)
    arranges = of_cause in _ARRANGE
    if of_cause and not arranges:
        return of_cause
    if enough := needless(memory):
        return [*map(advice_on_waste, enough)]
    wastes = waste_of(memory)
    in_pieces = is_in_pieces(memory, sum(waste.bytes for waste in wastes))
    wastes = [] if in_pieces else wastes
    fits = [*map(advice_on_waste, wastes[:MOST_WASTES]), *_of_peak(memory, peak, facts)]
    if _DATA in fits and memory.fit is not None and not in_pieces:
        return fits  # more of it is to come than this request
    if arranges and not wastes:
        grows = bool(fits) and _Composition(peak, facts, memory).needs_more
        return _with_arrangement(memory, of_cause, fits, grows=grows)
    return fits or of_cause or [_ACCUMULATE]


def needless(memory: DeviceMemory) -> list[Waste]:
    """Return what the job could do without, and the request would have fitted without it: the advice names
    these alone. None where something else is why it failed."""
    of_cause, wastes = _of_cause(memory), waste_of(memory)
    other = bool(of_cause) and of_cause not in _ARRANGE
    if other or is_in_pieces(memory, sum(waste.bytes for waste in wastes)):
        return []
    return [waste for waste in wastes if waste.fits is not False][:MOST_WASTES]


def _with_arrangement(
    memory: DeviceMemory, arrangement: list[Advice], fits: list[Advice], *, grows: bool
) -> list[Advice]:
    """Return how memory should be arranged, if that leaves room, and what else makes the request fit. grows:
    nobody knows how much is to come."""
    if may_fit_expandable(memory, room=MUCH_ROOM_SHARE if grows else ROOM_SHARE):
        return arrangement
    if grows or not may_fit_expandable(memory, room=LEAST_ROOM_SHARE):
        return fits or arrangement
    return arrangement + fits


def is_in_pieces(memory: DeviceMemory, kept_bytes: int) -> bool:
    """Whether a request failed only because memory is fragmented: with expandable segments there is much
    room, or more than what the job has kept."""
    if _of_cause(memory) != [_EXPANDABLE] or memory.fit is None or not memory.capacity_bytes:
        return False
    kept = max(ROOM_SHARE, kept_bytes / memory.capacity_bytes) if kept_bytes else MUCH_ROOM_SHARE
    return may_fit_expandable(memory, room=kept)


def _of_peak(memory: DeviceMemory, peak: Peak, facts: Facts) -> list[Advice]:
    """Return the advice that follows from what held the memory."""
    found = _Composition(peak, facts, memory)
    fits = [advice for applies, advice in _ADVICE if applies(found)]
    recomputes = any(map(CHECKPOINT.search, memory.allocations.memory.stacks))
    needless = recomputes or _cannot_recompute(memory)
    return [advice for advice in fits if advice != _CHECKPOINT or not needless]


def _cannot_recompute(memory: DeviceMemory) -> bool:
    """Whether checkpointing does not make the request fit, replayed: there are no blocks, or few, or most is
    elsewhere, such as the scores of a large vocabulary."""
    ways = {way.kind: way for way in memory.shortage.ways}
    recomputed = ways.get(WayKind.CHECKPOINT)
    return bool(ways) and (recomputed is None or not recomputed.may_fit)
