"""GD402: the peak leaves next to nothing of a GPU's memory, or did not fit at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.peak import MemoryKind, Owner
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.rules.rule import (
    MEMORY_FILES,
    NO_GPU,
    NOTHING_CLAIMED,
    TRACES,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Place,
    Rule,
    Severity,
)
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.recording_advice import memory_not_recorded
from tb_gpudiag.trace.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.wording.format import count, share, size_bytes

# The CUDA context, the libraries and pieces that do not fit take some hundred MiB beside what tensors use,
# and a longer sequence is enough to take the rest. The fullest public trace leaves 68 % free.
ROOM_SHARE = 0.1

# An allocator that gives its cache back and asks again has been refused. Where it holds less than half of the
# device, something else has the rest, and what the job allocates is not the matter.
REFUSED_SHARE = 0.5

# What makes up a third of the peak is what it consists of: less of it makes the peak lower at once.
MAIN_SHARE = 0.33

# Gradients are as large as the weights. If a tenth of the peak is gradients while the forward pass runs, they
# could have been given back before it.
GRADIENT_SHARE = 0.1

KINDS_SHOWN = 4

_WORDS = {
    MemoryKind.BEFORE: "what was there before the recording",
    MemoryKind.PARAMETER: "weights",
    MemoryKind.GRADIENT: "gradients",
    MemoryKind.OPTIMIZER_STATE: "the optimizer's state",
    MemoryKind.ACTIVATION: "activations",
    MemoryKind.TEMPORARY: "temporaries",
    MemoryKind.INPUT: "input",
    MemoryKind.UNKNOWN: "what the trace does not tell",
}

URL = "https://docs.pytorch.org/docs/stable/checkpoint.html"


@dataclass(frozen=True)
class _Advice:
    text: str
    code: str


_ATTENTION = _Advice(
    "Compute attention with one fused operator: its memory does not grow with the square of the tokens.",
    "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
)
_CHECKPOINT = _Advice(
    "Compute the activations of the largest blocks again in the backward pass (2 to 4 times less, for "
    "about a third more computing).",
    "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)",
)
_PRECISION = _Advice(
    "Compute in bf16: activations of half the size.",
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
)
_ACCUMULATE = _Advice(
    "Take smaller batches, and add up their gradients.",
    "loss = criterion(model(x), y) / parts\nloss.backward()\n"
    "if (step + 1) % parts == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
)
_SET_TO_NONE = _Advice(
    "Unless they are added up over several batches, let go of the gradients before the next forward pass.",
    "optimizer.step()\noptimizer.zero_grad(set_to_none=True)   # right after the step, not before backward()",
)
_FOREACH = _Advice(
    "The optimizer's step makes the peak with its temporaries: update in one kernel, or by single weights.",
    "optimizer = torch.optim.AdamW(model.parameters(), fused=True)   # or foreach=False",
)
_STATE = _Advice(
    "Keep less of weights, gradients and the optimizer's state on each GPU.",
    "from torch.distributed.fsdp import fully_shard\nfully_shard(model)   # each rank keeps its part\n"
    "# or, on one GPU, an optimizer with 8-bit state",
)
_INFERENCE = _Advice(
    "Nothing is kept for a backward pass, so the batch is what counts: take a smaller one, and make sure "
    "that no graph is recorded.",
    "with torch.inference_mode():\n    outputs = [model(part).cpu() for part in batch.split(size)]",
)


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """The highest peak beside the capacity, and whether memory ran out."""
    of_gpus = [memory for memory in facts.memory if not memory.is_cpu]
    if not of_gpus:
        return memory_not_recorded(facts) if facts.device is not None else NO_GPU
    found = [_finding(facts, memory) for memory in of_gpus if _is_short(memory)]
    if found:
        return found
    known = [memory for memory in of_gpus if _has_room_known(memory)]
    if not known:
        return CannotTell(
            "the file does not say how much memory the GPU has, or how much was allocated before",
            "A trace of PyTorch 1.13 or newer with profile_memory=True says it.",
        )
    return Clear(
        "; ".join(
            f"{m.name}: the peak leaves {share(_room(m), m.capacity_bytes)} of {size_bytes(m.capacity_bytes)}"
            for m in known
        )
    )


def _has_room_known(memory: DeviceMemory) -> bool:
    return memory.capacity_bytes > 0 and not memory.curve.relative


def _room(memory: DeviceMemory) -> int:
    return max(0, memory.capacity_bytes - memory.peak.allocated_bytes)


def _is_short(memory: DeviceMemory) -> bool:
    reserve, capacity = memory.reserve, memory.capacity_bytes
    if reserve.out_of_memory:
        return True
    if reserve.retries and memory.peak_reserved_bytes >= REFUSED_SHARE * capacity:
        return True
    return _has_room_known(memory) and _room(memory) < ROOM_SHARE * memory.capacity_bytes


def _finding(facts: Facts, memory: DeviceMemory) -> Finding:
    peak, failed = memory.peak, memory.reserve.out_of_memory
    kinds = sorted(peak.kinds.items(), key=lambda one: -one[1])
    main, size = kinds[0]
    advice = list(_advice(facts, memory))
    phase = f" in {_PHASES[peak.phase]}" if peak.phase in _PHASES else ""
    return Finding(
        title=_title(memory),
        summary=f"Most is allocated{phase}, {share(size, peak.allocated_bytes)} of it {_WORDS[main]}. "
        + (
            "Something caught what failed, and the job went on: cuDNN's search for an algorithm does so, or "
            "a second try with a smaller batch. Where nothing does, it ends the job."
            if _went_on(memory)
            else "What does not fit ends the job."
            if failed
            else "A longer sequence, a larger batch or a piece that does not fit ends the job, and before "
            "that the allocator gives its cache back and waits for the GPU each time."
        ),
        fix=Fix(
            " ".join(one.text for one in advice),
            "\n\n".join(one.code for one in advice),
            URL,
        ),
        cost_bytes=sum(o.bytes for o in peak.owners if o.kind not in _FIXED),
        memory_device=memory.device,
        evidence=list(_evidence(memory, kinds)),
        places=[_place(owner) for owner in peak.owners if owner.operator or owner.frame][:MOST_PLACES],
        severity=Severity.ERROR if failed and not _went_on(memory) else Severity.WARNING,
    )


def _went_on(memory: DeviceMemory) -> bool:
    """Whether memory was allocated after the last failure."""
    failed, made = memory.reserve.out_of_memory_ns, memory.allocations.time_ns
    return bool(len(failed) and len(made) and made[-1] > failed[-1])


_FIXED = {MemoryKind.BEFORE, MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE}
_PHASES = {
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.OPTIMIZER: "the optimizer's step",
}


def _title(memory: DeviceMemory) -> str:
    if memory.reserve.out_of_memory:
        return f"{memory.name} ran out of memory {count(memory.reserve.out_of_memory, 'time')}"
    if not _has_room_known(memory) or _room(memory) >= ROOM_SHARE * memory.capacity_bytes:
        return f"{memory.name} had to empty its cache {count(memory.reserve.retries, 'time')} to get memory"
    left = share(_room(memory), memory.capacity_bytes)
    return f"The peak leaves {left} of {memory.name}'s memory: {size_bytes(_room(memory))}"


def _advice(facts: Facts, memory: DeviceMemory) -> Iterator[_Advice]:
    """What applies, by what the peak is made of; at least one."""
    peak = memory.peak
    part = {kind: size / max(1, peak.allocated_bytes) for kind, size in peak.kinds.items()}

    def is_main(*kinds: MemoryKind) -> bool:
        return sum(part.get(kind, 0.0) for kind in kinds) >= MAIN_SHARE

    said = 0
    attention = facts.unfused_attention
    if (
        attention is not None
        and len(attention.softmax)
        and is_main(MemoryKind.ACTIVATION, MemoryKind.TEMPORARY)
    ):
        said += 1
        yield _ATTENTION
    if is_main(MemoryKind.ACTIVATION):
        said += 1
        yield _CHECKPOINT
        if _computes_in_fp32(facts):
            yield _PRECISION
        yield _ACCUMULATE
    if part.get(MemoryKind.GRADIENT, 0.0) >= GRADIENT_SHARE and peak.phase is Phase.FORWARD:
        said += 1
        yield _SET_TO_NONE
    if peak.phase is Phase.OPTIMIZER and is_main(MemoryKind.TEMPORARY):
        said += 1
        yield _FOREACH
    if not part.get(MemoryKind.ACTIVATION) and peak.phase is Phase.FORWARD and is_main(MemoryKind.TEMPORARY):
        said += 1
        yield _INFERENCE
    if is_main(MemoryKind.BEFORE, MemoryKind.PARAMETER, MemoryKind.GRADIENT, MemoryKind.OPTIMIZER_STATE):
        said += 1
        yield _STATE
    if not said:
        yield _ACCUMULATE


def _computes_in_fp32(facts: Facts) -> bool:
    """Whether no matrix product is known to be in a lower precision."""
    if facts.device is None:
        return False
    kernels = facts.device.kernels
    return bool((kernels.matrix & (kernels.arithmetic == Arithmetic.FP32_CORES)).any())


def _evidence(memory: DeviceMemory, kinds: list[tuple[MemoryKind, int]]) -> Iterator[Evidence]:
    peak, reserve = memory.peak, memory.reserve
    whole = f" of {size_bytes(memory.capacity_bytes)}" if memory.capacity_bytes else ""
    yield Evidence("peak", f"{size_bytes(peak.allocated_bytes)}{whole}")
    for kind, size in kinds[:KINDS_SHOWN]:
        yield Evidence(_WORDS[kind], f"{size_bytes(size)}, {share(size, peak.allocated_bytes)}")
    if reserve.known:
        yield Evidence("reserved then", size_bytes(peak.reserved_at_peak_bytes))
    if reserve.retries:
        yield Evidence("cache emptied to get memory", count(reserve.retries, "time"))
    if reserve.out_of_memory:
        yield Evidence("allocations that failed", count(reserve.out_of_memory))


def _place(owner: Owner) -> Place:
    if owner.frame is None:
        return Place(operator=owner.operator, bytes=owner.bytes)
    return Place(owner.frame.file, owner.frame.line, owner.frame.function, owner.operator, bytes=owner.bytes)


RULE = Rule("GD402", "memory_peak", "Little memory left", check, about=TRACES | MEMORY_FILES)
