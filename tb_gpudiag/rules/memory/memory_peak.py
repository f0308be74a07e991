"""GD402: the peak leaves little GPU memory free, or an allocation failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.peak import MemoryKind, Owner, Peak
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import (
    MEMORY_FILES,
    TRACES,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Place,
    Rule,
    RuleAnswer,
    Severity,
    place_at,
)
from tb_gpudiag.rules.shared.emptied_cache import (
    emptying_evidence,
    emptying_sentence,
    emptying_takes,
)
from tb_gpudiag.rules.shared.leak import leaks_at_failure
from tb_gpudiag.rules.shared.leak_causes import Explained
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.out_of_memory import (
    out_of_memory_evidence,
    out_of_memory_sentences,
    out_of_memory_title,
    requesting_place,
)
from tb_gpudiag.rules.shared.recording_advice import gpu_memory_not_recorded
from tb_gpudiag.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.wording.kinds import MEMORY_KINDS, PHASES
from tb_gpudiag.wording.quantity import Quantity, number, share_of, size

CODE = fix_code(__name__)

# The CUDA context, libraries and fragmentation take some hundred MiB in addition to tensors, and one longer
# sequence can take the rest. The fullest public trace leaves 68% free.
ROOM_SHARE = 0.1

# An allocator that frees its cache and asks again was refused memory. If it holds less than half of the
# device, something else holds the rest, and the job's own allocations are not the problem.
REFUSED_SHARE = 0.5

# A kind of memory that makes up a third of the peak dominates it: less of it lowers the peak at once.
MAIN_SHARE = 0.33

# Gradients are as large as the weights. If they are a tenth of the peak in the forward pass, the job could
# have freed them before it.
GRADIENT_SHARE = 0.1

# A leak that held a tenth of the peak when an allocation failed is the first thing to fix: whatever else is
# saved, the leak fills it again.
LEAK_SHARE = 0.1

# If the leak held half of it or more, the job has enough memory without it.
MOSTLY_LEAK_SHARE = 0.5

KINDS_SHOWN = 4

URL = "https://docs.pytorch.org/docs/stable/checkpoint.html"


@dataclass(frozen=True)
class _Advice:
    text: str
    code: str


_ATTENTION = _Advice(
    "Use fused attention: its memory does not grow quadratically with the sequence length.",
    CODE["attention"],
)
_CHECKPOINT = _Advice(
    "Recompute the activations of the largest blocks in the backward pass (2 to 4 times less memory for "
    "about a third more compute).",
    CODE["checkpoint"],
)
_PRECISION = _Advice(
    "Compute in bf16, which halves the activations.",
    CODE["precision"],
)
_ACCUMULATE = _Advice(
    "Use smaller batches, and accumulate their gradients.",
    CODE["accumulate"],
)
_SET_TO_NONE = _Advice(
    "Unless you accumulate gradients over several batches, free them before the next forward pass.",
    CODE["set_to_none"],
)
_FOREACH = _Advice(
    "Temporaries of the optimizer step cause the peak: update in one fused kernel, or weight by weight.",
    CODE["fused_optimizer"],
)
_KEEP_CACHE = _Advice(
    "Remove torch.cuda.empty_cache(): the allocator empties its cache by itself where it must.",
    CODE["keep_cache"],
)
_BEFORE = _Advice(
    "Free what is not needed any more before this point, such as results of earlier parts, or work in "
    "smaller parts. Record from the job's beginning, or a memory snapshot, to see what holds the memory.",
    CODE["before"],
)
_STATE = _Advice(
    "Shard weights, gradients and optimizer state across GPUs.",
    CODE["shard"],
)
_INFERENCE = _Advice(
    "Nothing is kept for a backward pass, so the batch size decides: use a smaller batch, and make sure that "
    "no autograd graph is recorded.",
    CODE["inference"],
)


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Compare the peak with the capacity, and check whether memory ran out."""
    of_gpus = [memory for memory in facts.memory if not memory.is_cpu]
    if not of_gpus:
        return gpu_memory_not_recorded(facts)
    fills = facts.job.server is not None
    found = [_finding(memory, facts) for memory in of_gpus if _is_short(memory, fills=fills)]
    if found:
        return found
    known = [memory for memory in of_gpus if _has_room_known(memory)]
    if not known:
        return CannotTell(
            "the file does not say how much memory the GPU has, or how much was allocated before recording",
            "Record with profile_memory=True and PyTorch 1.13 or newer.",
        )
    return Clear(
        "; ".join(
            f"{m.name}: the peak leaves {_free_share(m)} of {size(m.capacity_bytes)} free" for m in known
        )
    )


def _has_room_known(memory: DeviceMemory) -> bool:
    return memory.capacity_bytes > 0 and not memory.curve.relative


def _room(memory: DeviceMemory) -> int:
    return max(0, memory.capacity_bytes - memory.peak.allocated_bytes)


def _free_share(memory: DeviceMemory) -> Quantity:
    return share_of(_room(memory), memory.capacity_bytes)


def _is_short(memory: DeviceMemory, *, fills: bool) -> bool:
    """fills: the job fills the GPU's memory on purpose, as an inference server does with its cache."""
    reserve, capacity = memory.reserve, memory.capacity_bytes
    if reserve.out_of_memory:
        return True
    if reserve.retries and memory.peak_reserved_bytes >= REFUSED_SHARE * capacity:
        return True
    return _has_little_room(memory) and not fills


def _has_little_room(memory: DeviceMemory) -> bool:
    return _has_room_known(memory) and _room(memory) < ROOM_SHARE * memory.capacity_bytes


def _finding(memory: DeviceMemory, facts: Facts) -> Finding:
    failure = memory.failure
    peak = failure.held if failure is not None else memory.peak
    kinds = sorted(peak.kinds.items(), key=lambda one: -one[1])
    leaks = _filling_leaks(memory)
    window_ns = facts.window.duration_ns
    advice = _advice(_Composition(peak, facts))
    if memory.reserve.emptied > memory.reserve.retries and emptying_takes(memory, window_ns):
        advice = [_KEEP_CACHE, *advice]
    places = [_place(owner) for owner in peak.owners if owner.operator or owner.frame]
    requesting = requesting_place(failure) if failure is not None else None
    if leaks:
        rest = advice if _is_short_without(memory, leaks) else []
        advice = [_leak_advice(leak, "Then" if i else "First") for i, leak in enumerate(leaks)] + rest
    return Finding(
        title=_title(memory, window_ns),
        summary=" ".join(
            filter(
                None,
                (_situation(memory, kinds), emptying_sentence(memory, window_ns), _consequence(memory)),
            )
        ),
        fix=Fix(
            " ".join(one.text for one in advice),
            "\n\n".join(one.code for one in advice),
            URL,
        ),
        cost_bytes=_cost_bytes(memory, leaks),
        memory_device=memory.device,
        evidence=list(_evidence(memory, kinds)),
        places=([requesting] if requesting is not None else []) + places[:MOST_PLACES],
        severity=Severity.ERROR if memory.ran_out else Severity.WARNING,
    )


def _situation(memory: DeviceMemory, kinds: list[tuple[MemoryKind, int]]) -> str:
    if memory.failure is not None:
        return out_of_memory_sentences(memory.failure)
    peak, (main, held) = memory.peak, kinds[0]
    phase = f" in the {PHASES[peak.phase.label].noun}" if peak.phase.label else ""
    of_peak = share_of(held, peak.allocated_bytes)
    return f"Memory peaks{phase}. {of_peak} of it is {MEMORY_KINDS[main.value].noun}."


def _filling_leaks(memory: DeviceMemory) -> list[Explained]:
    """Return the leaks that filled the memory until an allocation failed."""
    leaks = leaks_at_failure(memory)
    return leaks if _held(leaks) >= LEAK_SHARE * memory.peak.allocated_bytes else []


def _held(leaks: list[Explained]) -> int:
    return sum(leak.bytes for leak in leaks)


def _leak_advice(leak: Explained, when: str) -> _Advice:
    frame = leak.sites[0].frame
    where = f" {frame.preposition} {frame}" if frame is not None else ""
    return _Advice(
        f"{when} fix the leak that filled the memory{where}, see GD401. {leak.cause.fix}", leak.cause.code
    )


def _is_short_without(memory: DeviceMemory, leaks: list[Explained]) -> bool:
    """Whether the job needs most of the peak without the leaks, too."""
    return _held(leaks) < MOSTLY_LEAK_SHARE * memory.peak.allocated_bytes


def _cost_bytes(memory: DeviceMemory, leaks: list[Explained]) -> int:
    """Return what can be saved at the peak. What leaks hold counts as GD401's cost."""
    variable = sum(owner.bytes for owner in memory.peak.owners if owner.kind not in _FIXED)
    return max(0, variable - _held(leaks)) if _is_short_without(memory, leaks) else 0


def _consequence(memory: DeviceMemory) -> str:
    if _went_on(memory):
        return (
            "The job handled the failed allocation and went on, as cuDNN's algorithm search does, or a retry "
            "with a smaller batch. Unhandled, it ends the job."
        )
    if memory.reserve.out_of_memory:
        return "A failed allocation ends the job."
    return (
        "A longer sequence, a larger batch or more fragmentation ends the job. Before that, the allocator "
        "frees its cache and waits for the GPU each time."
    )


def _went_on(memory: DeviceMemory) -> bool:
    return bool(memory.reserve.out_of_memory) and not memory.ran_out


_FIXED = {MemoryKind.BEFORE, MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE}


def _title(memory: DeviceMemory, window_ns: int) -> str:
    if memory.failure is not None:
        return out_of_memory_title(memory, memory.failure)
    if not _has_little_room(memory):
        return f"{memory.name} had to free its cache {number(memory.reserve.retries, 'time')} to get memory"
    title = f"The peak leaves {_free_share(memory)} of {memory.name}'s memory free: {size(_room(memory))}"
    takes = emptying_takes(memory, window_ns)
    return f"{title}. Emptying the cache takes {takes} of the time" if takes else title


@dataclass(frozen=True)
class _Composition:
    """What the peak consists of, and how the job computes."""

    peak: Peak
    facts: Facts

    def share(self, *kinds: MemoryKind) -> float:
        """Share of the peak that these kinds make up, 0 to 1."""
        return sum(self.peak.kinds.get(kind, 0) for kind in kinds) / max(1, self.peak.allocated_bytes)

    def is_mostly(self, *kinds: MemoryKind) -> bool:
        return self.share(*kinds) >= MAIN_SHARE


def _has_unfused_attention(found: _Composition) -> bool:
    attends = found.facts.device is not None and len(found.facts.unfused_attention.softmax) > 0
    return attends and found.is_mostly(MemoryKind.ACTIVATION, MemoryKind.TEMPORARY)


def _is_activations(found: _Composition) -> bool:
    return found.is_mostly(MemoryKind.ACTIVATION)


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
    """Temporaries of a forward pass dominate, and nothing is kept for a backward pass."""
    forward = found.peak.phase is Phase.FORWARD and found.is_mostly(MemoryKind.TEMPORARY)
    return forward and not found.share(MemoryKind.ACTIVATION)


def _is_model_state(found: _Composition) -> bool:
    """Weights and what belongs to them. In a training, memory from before the recording is mostly that."""
    known = (MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE, MemoryKind.GRADIENT)
    training = found.facts.job.training
    return found.is_mostly(*known, *((MemoryKind.BEFORE,) if training is True else ()))


def _is_from_before(found: _Composition) -> bool:
    """Most of it was allocated before the recording, and nothing shows what it is."""
    return found.is_mostly(MemoryKind.BEFORE) and not _is_model_state(found)


_ADVICE: tuple[tuple[Callable[[_Composition], bool], _Advice], ...] = (
    (_has_unfused_attention, _ATTENTION),
    (_is_activations, _CHECKPOINT),
    (_is_fp32_activations, _PRECISION),
    (_is_activations, _ACCUMULATE),
    (_is_old_gradients, _SET_TO_NONE),
    (_is_optimizer_temporaries, _FOREACH),
    (_is_inference, _INFERENCE),
    (_is_model_state, _STATE),
    (_is_from_before, _BEFORE),
)


def _advice(found: _Composition) -> list[_Advice]:
    """Return the advice that fits the peak, at least one."""
    return [advice for applies, advice in _ADVICE if applies(found)] or [_ACCUMULATE]


def _evidence(memory: DeviceMemory, kinds: list[tuple[MemoryKind, int]]) -> Iterator[Evidence]:
    peak, reserve, capacity = memory.peak, memory.reserve, memory.capacity_bytes
    yield Evidence("Peak", size(peak.allocated_bytes, f"of {size(capacity)}" if capacity else ""))
    if _has_room_known(memory):
        room = _room(memory)
        yield Evidence("Free at the peak", size(room), (share_of(room, capacity, "of the capacity"),))
    failure = memory.failure
    if failure is not None:
        yield from out_of_memory_evidence(failure)
    whole, of_it = (
        (failure.held.allocated_bytes, "of what was in use")
        if failure is not None
        else (peak.allocated_bytes, "of the peak")
    )
    for kind, held in kinds[:KINDS_SHOWN]:
        label = MEMORY_KINDS[kind.value].word
        yield Evidence(label, size(held), (share_of(held, whole, of_it),))
    if reserve.known:
        yield Evidence("Reserved at the peak", size(peak.reserved_at_peak_bytes))
    yield from emptying_evidence(memory)
    if reserve.out_of_memory:
        yield Evidence("Failed allocations", number(reserve.out_of_memory))


def _place(owner: Owner) -> Place:
    return place_at(owner.frame, operator=owner.operator, bytes=owner.bytes)


RULE = Rule("GD402", "memory_peak", "GPU memory nearly full", check, about=TRACES | MEMORY_FILES)
