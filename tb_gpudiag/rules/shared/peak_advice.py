"""Advice on a memory peak: by why an allocation failed, or else by what the peak consists of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.allocations import in_module
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.lost_passes import LostPasses
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.peak import Failure, Peak
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.ways import WayKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.needed_memory import barely_fits, may_fit_expandable
from tb_gpudiag.rules.shared.out_of_memory import FailureCause, cause_of
from tb_gpudiag.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.vocabulary.torch_frames import CHECKPOINT
from tb_gpudiag.wording.quantity import size

CODE = fix_code("tb_gpudiag.rules.memory.memory_peak")
FRAGMENTATION = fix_code("tb_gpudiag.rules.memory.memory_fragmentation")

# A kind of memory that makes up a third of the peak dominates it: less of it lowers the peak at once.
MAIN_SHARE = 0.33

# Gradients are as large as the weights. If they are a tenth of the peak in the forward pass, the job could
# have freed them before it.
GRADIENT_SHARE = 0.1


@dataclass(frozen=True)
class Advice:
    text: str
    code: str


_ATTENTION = Advice(
    "Use fused attention: its memory does not grow quadratically with the sequence length.",
    CODE["attention"],
)
_CHECKPOINT = Advice(
    "Recompute the activations of the largest blocks in the backward pass (2 to 4 times less memory for "
    "about a third more compute).",
    CODE["checkpoint"],
)
_PRECISION = Advice(
    "Compute in bf16, which halves the activations.",
    CODE["precision"],
)
_ACCUMULATE = Advice(
    "Use smaller batches, and accumulate their gradients.",
    CODE["accumulate"],
)
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
_STATE = Advice(
    "Shard weights, gradients and optimizer state across GPUs.",
    CODE["shard"],
)
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
_PAD = Advice(
    "Segments are expandable already: request fewer different sizes.",
    FRAGMENTATION["pad"],
)
_INFERENCE = Advice(
    "Nothing is kept for a backward pass, so the batch size decides: use a smaller batch, and make sure that "
    "no autograd graph is recorded.",
    CODE["inference"],
)
_LOAD = Advice(
    "A checkpoint that torch.load() put on the GPU is still there beside the model: load it into the host's "
    "memory, and let go of it.",
    CODE["load"],
)
_MODELS = Advice(
    "Models that were trained before are still there, with their optimizers: keep what you need of them on "
    "the host, and let go of the rest before the next one is made.",
    CODE["models"],
)
INPUTS = Advice(
    "Inputs are most of it: leave the data set in the host's memory, and copy one batch at a time, or use "
    "smaller batches.",
    CODE["inputs"],
)


def _evaluation(lost: LostPasses) -> Advice:
    where = f" {lost.frame.preposition} {lost.frame}" if lost.frame is not None else ""
    return Advice(
        f"The forward passes called{where} keep {size(lost.bytes)} for backward passes that never come: run "
        "them without gradients, and keep results on the host.",
        CODE["inference"],
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
    def has_no_model(self) -> bool:
        """Whether a snapshot's stacks show that no module was called, and no pass of a training came."""
        allocations = self.memory.allocations
        trains = np.isin(allocations.phase, (Phase.BACKWARD, Phase.OPTIMIZER)).any()
        return bool(allocations.memory.stacks) and not trains and not in_module(allocations).any()

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
    attends |= found.memory.quadratic_bytes >= MAIN_SHARE * found.peak.allocated_bytes
    return attends and found.is_mostly(MemoryKind.ACTIVATION, MemoryKind.TEMPORARY)


def _is_activations(found: _Composition) -> bool:
    return found.activations >= MAIN_SHARE


def _is_fp32_activations(found: _Composition) -> bool:
    """Activations dominate, and some matmuls run in FP32."""
    if found.facts.device is None or not _is_activations(found):
        return False
    kernels = found.facts.gpu.kernels
    return bool((kernels.matrix & (kernels.arithmetic == Arithmetic.FP32_CORES)).any())


def _is_old_gradients(found: _Composition) -> bool:
    """Gradients of the previous step are still allocated in the forward pass."""
    return found.peak.phase is Phase.FORWARD and found.share(MemoryKind.GRADIENT) >= GRADIENT_SHARE


def _is_optimizer_temporaries(found: _Composition) -> bool:
    return found.peak.phase is Phase.OPTIMIZER and found.is_mostly(MemoryKind.TEMPORARY)


def _is_inference(found: _Composition) -> bool:
    """What forward passes made dominates, and nothing is kept for a backward pass."""
    made = [MemoryKind.TEMPORARY] + ([] if found.trains else [MemoryKind.UNKNOWN])
    forward = found.peak.phase is Phase.FORWARD and found.is_mostly(*made)
    return forward and not found.share(MemoryKind.ACTIVATION) and not found.has_no_model


def _is_model_state(found: _Composition) -> bool:
    """Weights and what belongs to them, and no more activations. In a training, memory from before the
    recording is mostly that."""
    known = found.share(MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE) + found.gradients
    known += found.share(MemoryKind.BEFORE) if found.facts.job.training is True else 0
    return known >= max(MAIN_SHARE, found.activations)


def _is_from_before(found: _Composition) -> bool:
    """Most of it was allocated before the recording, and nothing shows what it is, or before any model."""
    unknown = (MemoryKind.TEMPORARY, MemoryKind.UNKNOWN) if found.has_no_model else ()
    return found.is_mostly(MemoryKind.BEFORE, *unknown) and not _is_model_state(found)


_ADVICE: tuple[tuple[Callable[[_Composition], bool], Advice], ...] = (
    (_has_unfused_attention, _ATTENTION),
    (_is_activations, _CHECKPOINT),
    (_is_fp32_activations, _PRECISION),
    (_is_activations, _ACCUMULATE),
    (_is_old_gradients, _SET_TO_NONE),
    (_is_optimizer_temporaries, _FOREACH),
    (_is_inference, _INFERENCE),
    (_is_model_state, _STATE),
    (_is_from_before, _BEFORE),
    (lambda found: found.is_mostly(MemoryKind.INPUT), INPUTS),
)


_OF_CAUSE = {
    FailureCause.GIANT: [_GIANT],
    FailureCause.POOLS: [_POOL],
    FailureCause.BLOCKS: [_POOL],
    FailureCause.LIMIT: [OTHERS],
    FailureCause.OTHERS: [OTHERS],
    FailureCause.FRAGMENTED: [_EXPANDABLE],
}


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
    """Return the advice that fits the failure or the peak, at least one."""
    fits, of_cause = _of_peak(memory, peak, facts), _of_cause(memory)
    if of_cause in ([_EXPANDABLE], [_PAD]) and _lost_passes(memory, peak) is not None:
        return fits  # more and more graphs fill any memory, however well its parts are joined
    if of_cause == [_EXPANDABLE] and barely_fits(memory):
        return of_cause + fits if may_fit_expandable(memory) or not fits else fits
    return of_cause or fits or [_ACCUMULATE]


def _of_peak(memory: DeviceMemory, peak: Peak, facts: Facts) -> list[Advice]:
    """Return the advice that follows from what held the memory."""
    if (lost := _lost_passes(memory, peak)) is not None:
        return [_evaluation(lost)]
    found, needless = _Composition(peak, facts, memory), list[Advice]()
    fits = [advice for applies, advice in _ADVICE if applies(found)]
    if memory.failure is not None and memory.loaded_bytes >= memory.failure.requested_bytes:
        fits, needless = [_LOAD, *fits], [_STATE]
    if memory.earlier_models_bytes >= MAIN_SHARE * peak.allocated_bytes:
        fits, needless = [_MODELS, *fits], [*needless, _STATE]
    if _SET_TO_NONE in fits and memory.failure is not None and _frees_enough(memory.failure):
        needless.append(_STATE)
    recomputes = any(map(CHECKPOINT.search, memory.allocations.memory.stacks))
    if _ACCUMULATE in fits and (recomputes or _only_smaller_batches_fit(memory)):
        needless.append(_CHECKPOINT)
    return [advice for advice in fits if advice not in needless]


def _lost_passes(memory: DeviceMemory, peak: Peak) -> LostPasses | None:
    """Return forward passes without a backward pass that hold much of the peak."""
    lost = memory.lost_passes
    return lost if lost is not None and lost.bytes >= MAIN_SHARE * peak.allocated_bytes else None


def _only_smaller_batches_fit(memory: DeviceMemory) -> bool:
    """Whether half of the batch may fit, replayed, and checkpointing does not: blocks are checkpointed
    already, there are few, or most is elsewhere, such as the scores of a large vocabulary."""
    ways = {way.kind: way for way in memory.ways}
    half, recomputed = ways.get(WayKind.HALF_BATCH), ways.get(WayKind.CHECKPOINT)
    return half is not None and recomputed is not None and half.may_fit and not recomputed.may_fit


def _frees_enough(failure: Failure) -> bool:
    """Whether the request would fit without the gradients, and as much again."""
    return failure.held.kinds.get(MemoryKind.GRADIENT, 0) >= 2 * failure.requested_bytes
