"""GD403: the allocator holds far more memory than tensors use: a warning where the device is nearly used
up by it, a hint where it has room."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
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
from tb_gpudiag.rules.shared.recording_advice import memory_not_recorded
from tb_gpudiag.trace.vocabulary.api_calls import GRAPH_LAUNCH
from tb_gpudiag.wording.format import count, share, size_bytes

# The usual rule of thumb. Public traces have 1.01 to 1.33 times as much reserved as allocated at the peak;
# one has 1.93, and two thirds of its GPU free.
RESERVED_RATIO = 1.5

# A part that nobody would miss is not worth a word. A tenth is what a batch can be made larger by, at least.
UNUSED_SHARE = 0.1

# Where the capacity is not known, a GiB is what a larger batch would notice.
UNUSED_BYTES = 2**30

# It does no harm to the job while the device has room for more: then it is a hint. From half of the device
# on, the unused part is what the next larger batch lacks: a warning.
RESERVED_SHARE = 0.5

# A snapshot shows the pieces. Where one of them is half of what is not used, most requests would fit: the
# memory was needed earlier, and is kept. That is a hint, too.
LARGEST_PIECE_SHARE = 0.5

MOST_PLACES = 3
"""The largest of what is alive at the peak: what the free pieces lie between."""

_EXPANDABLE = """# In the shell, or before torch is imported. PYTORCH_ALLOC_CONF is the newer name.
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True\""""

_POOL = """pool = torch.cuda.graph_pool_handle()
with torch.cuda.graph(large, pool=pool):
    ...
with torch.cuda.graph(small, pool=pool):
    ..."""

_SPLIT = """# In the shell, or before torch is imported:
os.environ["PYTORCH_HIP_ALLOC_CONF"] = "garbage_collection_threshold:0.8,max_split_size_mb:256\""""

_PAD = """# A few sizes in place of many: what is freed fits again.
length = -(-max(len(x) for x in batch) // 64) * 64
batch = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
batch = torch.nn.functional.pad(batch, (0, length - batch.shape[1]))"""


_EMPTY_TEXT = (
    "If the memory is wanted: give it back once, after what needed it. In each step that would cost more "
    "than it gives."
)
_EMPTY = """evaluate(model)             # what has needed more than a step does
torch.cuda.empty_cache()    # once, not in the loop"""
_EMPTY_URL = "https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html"


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Reserved beside allocated, at the moment when most was allocated."""
    of_gpus = [memory for memory in facts.memory if not memory.is_cpu]
    if not of_gpus:
        return memory_not_recorded(facts) if facts.device is not None else NO_GPU
    known = [memory for memory in of_gpus if memory.reserve.known]
    if not known:
        return CannotTell(
            "the file does not say how much memory the allocator had reserved",
            "A trace of PyTorch 1.13 or newer with profile_memory=True says it, and a memory snapshot.",
        )
    return [_finding(facts, memory) for memory in known if _is_much(memory)] or Clear(
        "; ".join(f"{m.name}: {_ratio(m):.2f} times as much reserved as allocated at the peak" for m in known)
    )


def _ratio(memory: DeviceMemory) -> float:
    return memory.peak.reserved_at_peak_bytes / max(1, memory.peak.allocated_bytes)


def _is_much(memory: DeviceMemory) -> bool:
    unused = memory.reserve.unused_at_peak_bytes
    return (_ratio(memory) >= RESERVED_RATIO and unused >= _least(memory)) or _failed_beside_it(memory)


def _least(memory: DeviceMemory) -> float:
    return UNUSED_SHARE * memory.capacity_bytes or UNUSED_BYTES


def _failed_beside_it(memory: DeviceMemory) -> bool:
    """Whether an allocation failed for which enough was there: surely in pieces, for segments that are free
    as a whole are given back first."""
    return memory.reserve.unused_at_failure_bytes >= _least(memory)


def _is_in_the_way(memory: DeviceMemory) -> bool:
    """Whether memory runs out earlier by it. Without a capacity nothing says that there is room."""
    segments, unused = memory.reserve.segments, memory.reserve.unused_at_peak_bytes
    if segments is not None and segments.largest_free_bytes >= LARGEST_PIECE_SHARE * unused:
        return False
    return memory.peak.reserved_at_peak_bytes >= RESERVED_SHARE * memory.capacity_bytes


def _finding(facts: Facts, memory: DeviceMemory) -> Finding:
    cost = memory.reserve.unused_at_peak_bytes
    unused = size_bytes(cost)
    if _failed_beside_it(memory):
        cost = memory.reserve.unused_at_failure_bytes
        title = f"{memory.name}: an allocation failed while {size_bytes(cost)} were reserved and not used"
        summary = (
            f"It asked for {size_bytes(memory.reserve.failed_bytes)}. As much was there, in pieces between "
            "tensors or in pools of others, none of which fitted."
        )
        fix, severity = _fix(facts, memory), Severity.WARNING
    elif _is_in_the_way(memory):
        title = f"{memory.name}: {unused} are reserved and not used when most is needed"
        summary = (
            f"At the peak the allocator holds {_ratio(memory):.1f} times what tensors use. What it holds is "
            "in pieces that do not fit what is asked for, so it gets more from the driver, and runs out "
            "earlier than it would have to."
        )
        fix, severity = _fix(facts, memory), Severity.WARNING
    else:
        title = f"{memory.name}: {unused} are reserved and not used"
        summary = (
            f"At the peak the allocator holds {_ratio(memory):.1f} times what tensors use. It keeps what it "
            "once had, so an earlier, higher peak may explain it. The job loses nothing by it; it matters "
            "where others share the GPU, or the batch is to grow."
        )
        fix, severity = Fix(_EMPTY_TEXT, _EMPTY, _EMPTY_URL), Severity.INFO
    return Finding(
        title=title,
        summary=summary,
        fix=fix,
        cost_bytes=cost,
        memory_device=memory.device,
        evidence=list(_evidence(memory)),
        places=[
            Place(o.frame.file, o.frame.line, o.frame.function, o.operator, bytes=o.bytes)
            for o in memory.peak.owners[:MOST_PLACES]
            if o.frame is not None
        ],
        severity=severity,
    )


def _evidence(memory: DeviceMemory) -> Iterator[Evidence]:
    peak, reserve = memory.peak, memory.reserve
    yield Evidence("reserved at the peak", size_bytes(peak.reserved_at_peak_bytes))
    yield Evidence("allocated at the peak", size_bytes(peak.allocated_bytes))
    if memory.capacity_bytes:
        part = share(reserve.unused_at_peak_bytes, memory.capacity_bytes)
        yield Evidence("not used, of the device", f"{part} of {size_bytes(memory.capacity_bytes)}")
    if reserve.steady_growths or reserve.steady_shrinks:
        grown = (
            f"{count(reserve.steady_growths, 'growth')}, given back {count(reserve.steady_shrinks, 'time')}"
        )
        yield Evidence("reserved memory after the first step", grown)
    if (segments := reserve.segments) is not None:
        yield Evidence("segments", f"{count(segments.segments)}, {count(segments.expandable)} expandable")
        yield Evidence("free beside what is used", size_bytes(segments.free_in_used_segments_bytes))
        yield Evidence("largest free piece", size_bytes(segments.largest_free_bytes))


def _fix(facts: Facts, memory: DeviceMemory) -> Fix:
    url = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
    segments = memory.reserve.segments
    if segments is not None and segments.expandable:
        return Fix("Segments are expandable already: ask for fewer different sizes.", _PAD, url)
    if facts.calls.count_by_name(GRAPH_LAUNCH):
        return Fix(
            "CUDA graphs hold pools of their own: capture them into one shared pool, the largest first.",
            _POOL,
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#graph-memory-management",
        )
    if memory.is_rocm:
        return Fix("Let the allocator give back what lies unused, and ask for fewer sizes.", _SPLIT, url)
    return Fix(
        "Let segments grow in place, so that freed pieces join; where sizes vary, pad them to a few.",
        _EXPANDABLE,
        url,
    )


RULE = Rule(
    "GD403", "memory_fragmentation", "Memory reserved and not used", check, about=TRACES | MEMORY_FILES
)
