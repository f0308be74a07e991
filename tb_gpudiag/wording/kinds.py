"""The words for kinds of things: kernels, memory, synchronizations, events, files."""

from __future__ import annotations

from tb_gpudiag.vocabulary.collective_kinds import DDP
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.term import Term, table

FAMILIES = table(
    Term("gemm", "Matmul", "Multiplies a matrix with a matrix or a vector."),
    Term("convolution", "Convolution", "Computes a convolution, forward or backward."),
    Term("attention", "Attention", "Computes attention in one fused kernel."),
    Term("elementwise", "Elementwise", "Computes each output from its own inputs: pointwise math, casts."),
    Term("reduction", "Reduction", "Sums, maxima, scans, pooling and losses."),
    Term("normalization", "Normalization", "Layer, batch, group and RMS norm."),
    Term("softmax", "Softmax", "Exponentials of each row, divided by their sum."),
    Term("copy", "Data movement", "Moves data and computes nothing: copies, memsets, transposes, gathers."),
    Term("collective", "Collective", "Communicates between GPUs."),
    Term("other", "Other", "The kernel's name does not show what it does."),
)
"""What a kernel does, judging by its name."""

EXPOSURE_REASONS = table(
    Term("hidden", "Hidden", "Something computed all the time."),
    Term(
        "other_rank",
        "Waits for another rank",
        "It took longer than equal collectives: another rank arrived later.",
        phrase="a rank that arrives late",
    ),
    Term(
        "same_stream",
        "On the computing stream",
        "It runs on the stream that computes, so nothing can compute beside it.",
        phrase="the stream that computes runs them, too",
    ),
    Term(
        "host_behind",
        "Host launches too late",
        "Nothing was queued to compute beside it: the host launched the next kernel later.",
        phrase="a host that launches the next kernels too late",
    ),
    Term(
        "synchronized",
        "Host waits for it",
        "The host waits for it before it launches what computes next.",
        phrase="a host that waits for them before it launches more",
    ),
    Term(
        "rate_limited",
        "Rate limiter",
        "FSDP's rate limiter (limit_all_gathers) held the host until an earlier unit was freed.",
        phrase="FSDP's rate limiter",
    ),
    Term(
        "not_prefetched",
        "Not prefetched",
        "FSDP launched it for the unit that runs next, not while the unit before it computed.",
        phrase="no prefetch: FSDP launches them for the unit that runs next",
    ),
    Term(
        "late_launch",
        "Launched late",
        "The host launched it when the computing before it was over.",
        phrase="a host that launches them late",
    ),
    Term(
        "behind_collective",
        "Behind another collective",
        "It was launched in time, and could begin only after the collective before it.",
        phrase="the collectives queued before them",
    ),
    Term(
        "last_bucket",
        "Last bucket",
        "The last gradients of the backward pass: nothing is left to compute.",
        phrase="the last bucket, which has nothing left to hide behind",
    ),
    Term(
        "reduced_again",
        "Sent again",
        "Gradients or weights of a micro-batch: others send them, too, before the optimizer steps.",
        phrase="gradients or weights that are sent in each micro-batch",
    ),
    Term(
        "needed_at_once",
        "Needed at once",
        "It sends what was just computed, and the next layer needs the result.",
        phrase="layers that need the result at once",
    ),
    Term(
        "after_computing",
        "Starts after computing",
        "It was launched in time, and could begin only when the computing before it had ended.",
        phrase="computing that has to end before they begin",
    ),
    Term(
        "too_long",
        "Longer than the computing",
        "It began while something computed, and took longer.",
        phrase="too little computing to hide them behind",
    ),
    Term(
        "waited_for",
        "Waited for at once",
        "The host called it and computed nothing until it was over.",
        phrase="a host that waits right after the call",
    ),
    Term(
        "unknown",
        "Cannot tell",
        "The trace does not show it.",
        phrase="reasons that the trace does not show",
    ),
)
"""Why nothing computes while a collective runs."""

MFU_PARTS = table(
    Term("idle", "Idle", "Nothing runs on the GPU."),
    Term("communicating", "Communication", "Collectives run, and nothing computes meanwhile."),
    Term("copying", "Copies", "Copies run, and nothing computes meanwhile."),
    Term(
        "memory_bound",
        "Memory-bound",
        "Kernels that move data and hardly compute, and what memory bandwidth costs matmuls.",
    ),
    Term(
        "low_efficiency",
        "Low efficiency",
        "Matmuls, convolutions and attention take longer than arithmetic and memory bandwidth explain.",
    ),
    Term(
        "data_type",
        "Slower data type",
        "Matmuls in a format with a lower peak than the one that most FLOPs are computed in.",
    ),
    Term(
        "unknown",
        "Unknown FLOPs",
        "Kernels that may compute FLOPs that the trace does not show, and work that it lacks.",
    ),
    Term("recomputed", "Recomputed", "Arithmetic of the forward pass that backward repeats: checkpointing."),
    Term("model", "Model FLOPs", "Arithmetic that the model needs, at the peak: the MFU."),
)
"""What a GPU's stated peak goes to."""

ENGINE_KINDS = table(
    Term("prefill", "Prefill", "All requests of the step are at their prompts."),
    Term("decode", "Decode", "All requests of the step get their next token, or next few."),
    Term("mixed", "Mixed", "Some requests are at their prompts, and others get their next token."),
    Term("idle", "Idle", "An engine without requests runs along with the other engines of the job."),
    Term("forward", "Not known", "The trace does not say what the requests of the step are at."),
)
"""Kinds of steps of an inference server's engine."""

MEMORY_KINDS = table(
    Term("parameter", "Parameters", "Weights of the model."),
    Term("gradient", "Gradients", "Allocated in the backward pass and kept for the optimizer."),
    Term(
        "optimizer_state", "Optimizer state", "Allocated by the optimizer and kept, such as Adam's moments."
    ),
    Term("activation", "Activations", "Allocated in the forward pass and kept for the backward pass."),
    Term("temporary", "Temporaries", "Freed soon after they were allocated."),
    Term("input", "Inputs", "Data copied to the device."),
    Term(
        "before",
        "Allocated before recording",
        "Live when the recording began. The recording does not show what it is for.",
        phrase="memory allocated before recording",
    ),
    Term(
        "unknown",
        "Unknown",
        "The recording does not show what it is for.",
        phrase="memory of unknown purpose",
    ),
)
"""What memory is for. Any two can touch in the treemap of the peak."""

MEMORY_LINES = table(
    Term("allocated", "Allocated", "Memory in use by tensors."),
    Term("reserved", "Reserved", "Memory that the caching allocator has from the driver, in use or not."),
    Term("floor", "Floor", "Lowest allocated memory of each step."),
    Term("capacity", "Capacity", "Memory of the device."),
)
"""Lines of the memory chart. They can cross."""

SYNC_KINDS = table(
    Term("print", "Printing a tensor", "The tensor is copied to the host to become text."),
    Term(
        "size",
        "Size that only the GPU knows",
        "The host needs a result's size: nonzero, unique, a boolean index.",
    ),
    Term("condition", "Branch on a tensor's value", "An if or while reads a tensor's value on the host."),
    Term("item", ".item() or float()", "One value is read on the host.", phrase=".item() or float()"),
    Term("copy_to_host", "Copy to the host", ".cpu(), .tolist() or .numpy() waits for the copy."),
    Term(
        "copy_to_device",
        "Copy to the device",
        "A copy from pageable memory returns after the data has left it.",
    ),
    Term("device", "Device synchronization", "A wait for all streams, such as torch.cuda.synchronize()."),
    Term("event", "Event synchronization", "The host waits until the GPU has reached an event."),
    Term("stream", "Stream synchronization", "The host waits until one stream has no work left."),
    Term("launch", "Launch that waits", "Each launch waits for its kernel: CUDA_LAUNCH_BLOCKING=1."),
    Term("copy", "Copy", "A copy whose direction is not recorded."),
)
"""What makes the host wait for the GPU."""

COLLECTIVE_KINDS = table(
    Term("allreduce", "All-reduce", "Every rank gets the sum over all ranks."),
    Term("allgather", "All-gather", "Every rank gets the parts of all ranks."),
    Term("reducescatter", "Reduce-scatter", "Every rank gets one part of the sum over all ranks."),
    Term("alltoall", "All-to-all", "Every rank sends a different part to every other rank."),
    Term("sendrecv", "Send and receive", "Two ranks exchange data."),
    Term("broadcast", "Broadcast", "One rank's data goes to all others."),
    Term("reduce", "Reduce", "One rank gets the sum over all ranks."),
    Term(
        "crossdevicereduce",
        "Custom all-reduce",
        "An all-reduce over direct access to the other GPUs' memory.",
    ),
    Term("dispatch", "Expert dispatch", "Tokens are sent to the ranks of their experts."),
    Term("combine", "Expert combine", "Results of the experts return to the tokens' ranks."),
)
"""Kinds of collectives. See `collective`."""


def collective(name: str) -> Term:
    """Return the term of a collective, however its name is written: AllReduce, all_reduce. The word for
    one that is not known is its name, in quotes."""
    known = COLLECTIVE_KINDS.get(name.replace("_", "").lower())
    word = in_quotes(name, 60)
    return known or Term(name, word, "", phrase=word)


def unit_text(parallelism: str, unit: str, number: int, of: int) -> str:
    """What a collective is for: `layers.3`, `bucket 4 of 5`, `number 3 of 12 in a step`; "" where the trace
    does not say. number: from 1; lower if the trace does not say."""
    if unit or number < 1:
        return unit
    return f"bucket {number} of {of}" if parallelism == DDP else f"number {number} of {of} in a step"


HOST_KINDS = table(
    Term("input", "Data loading", "The data loader, all of it together."),
    Term("operator", "Operator", "A PyTorch operator on the CPU."),
    Term("call", "Runtime call", "A call of the CUDA or HIP runtime or driver."),
    Term("python", "Python", "Python code between operators."),
)
"""What the main host thread does."""

EVENT_KINDS = table(
    Term("other", "Event", "An event of another kind."),
    Term("cpu_op", "Operator", "A PyTorch operator on the CPU."),
    Term("user_annotation", "Annotation", "A range that the program named."),
    Term("python_function", "Python function", "A Python call, recorded with_stack=True."),
    Term("runtime", "Runtime call", "A call of the CUDA or HIP runtime."),
    Term("driver", "Driver call", "A call of the CUDA driver."),
    Term("kernel", "Kernel", "A program on the GPU."),
    Term("memcpy", "Copy", "A copy to, from or on the GPU."),
    Term("memset", "Memset", "GPU memory is filled with a value."),
    Term("gpu_user_annotation", "GPU annotation", "A range of GPU work that the program named."),
    Term("overhead", "Profiler overhead", "The profiler itself."),
    Term("cuda_sync", "Synchronization", "The host waits for the GPU."),
    Term("instant", "Instant", "An event without a duration."),
    Term("communication", "Communication", "A collective's kernel."),
    Term("mtia", "MTIA event", "An event of an accelerator that is not read."),
    Term("ascend", "Ascend event", "An event of an accelerator that is not read."),
)
"""Kinds of events on the timeline, in the order of their numbers on the wire."""

STEP_SIGNS = table(
    Term(
        "module",
        "Own module call",
        "Each repetition runs its own call of an outermost module, so each counts as a step.",
    ),
    Term("input", "Own input", "Each repetition takes data from the host, so each counts as a step."),
    Term(
        "threads",
        "Several threads",
        "Several host threads launch each repetition, as forward and backward do, so each counts as a step.",
    ),
    Term(
        "one_call",
        "Inside one call",
        "All repetitions are inside one call of {inside}. They are parts of a step, such as layers.",
    ),
    Term(
        "part",
        "Part of the work",
        "Most of the GPU's work is outside of them. They are parts of a step, such as batches of one image.",
    ),
    Term(
        "none",
        "No evidence",
        "The trace does not show whether a repetition is a step or a part of one, such as a layer.",
    ),
)
"""Why a repetition is taken for a step, or is not. `{inside}` stands for the call's name."""

PHASES = table(
    Term("forward", "Forward pass", "Operators and modules of the forward pass."),
    Term("backward", "Backward pass", "Autograd computes gradients."),
    Term("optimizer", "Optimizer step", "The optimizer updates the weights."),
    Term("zero_grad", "Zeroing of gradients", "Gradients are zeroed or freed before the next step."),
)
"""What part of a step memory belongs to."""

TREND_STATES = table(
    Term("rising", "Rising", "The floor rises from step to step.", phrase="rises by {change}"),
    Term("level", "Level", "The floor does not change.", phrase="stays level"),
    Term("plateau", "Plateau", "The floor rose and then stays level.", phrase="rose and now stays level"),
    Term("falling", "Falling", "The floor falls from step to step.", phrase="falls by {change}"),
    Term(
        "unclear",
        "Unclear",
        "The floor changes without a direction.",
        phrase="changes by {change}, without a clear trend",
    ),
)
"""What the floor of memory does over the steps. `{change}` stands for a size."""

SAVING_BASES = table(
    Term("replayed", "Replayed", "Simulated from your trace, without this cost."),
    Term("estimate", "Estimate", "An estimate from measured times or known rates."),
    Term("at most", "At most", "Low confidence: upper bound only."),
)
"""How a saving was found."""

FILE_KINDS = table(
    Term("trace", "Trace", "A torch.profiler trace: what ran when.", phrase="a trace"),
    Term(
        "snapshot",
        "CUDA memory snapshot",
        "Allocations of the caching allocator, with stacks.",
        phrase="a memory snapshot",
    ),
    Term(
        "memory_timeline",
        "Memory timeline",
        "Memory by category over time, from torch.profiler.",
        phrase="a memory timeline",
    ),
    Term(
        "record",
        "Record",
        "What the training job left of a recording in an event file: the trace was not kept.",
        phrase="a record",
    ),
    Term(
        "hang",
        "Job that hangs",
        "Dumps of torch's flight recorder: the last collectives that each rank has called.",
        phrase="dumps of the flight recorder",
    ),
    Term("clock", "Step clock", "How long each step of a run took, by rank and phase, without the profiler."),
)
"""What a file contains."""

CLOCK_PHASES = table(
    Term("input", "Input", "Waiting for the loader.", phrase="waiting for the next batch (input)"),
    Term("forward", "Forward", "The model and its loss."),
    Term("backward", "Backward", "Gradients."),
    Term("wait", "Wait", "What DDP waits for other ranks.", phrase="waiting for other ranks (wait)"),
    Term("optimizer", "Optimizer", "The optimizer's step."),
    Term(
        "garbage",
        "Garbage",
        "Python's garbage collection, which no other phase of the host contains.",
        phrase="garbage collection",
    ),
    Term(
        "other",
        "Other",
        "The rest of the step.",
        phrase="what is around forward, backward and optimizer (other)",
    ),
)
"""The phases of a step that a step clock times."""

HANG_STATES = table(
    Term("ENDED", "After", "Its last operation has ended: the rank is in code of its own after it."),
    Term("WAITS", "Waiting in", "It has called the operation, which has not ended."),
    Term("RUNS", "Running", "The operation has begun on the GPU, and not ended."),
    Term("NO_DUMP", "No dump", "The rank belongs to the job, and there is no dump of it."),
)
"""Where a rank of a job that hangs is."""

MEMORY_FIGURES = table(
    Term("peak", "Allocated at the peak", "Highest allocated memory of the recording."),
    Term("reserved", "Reserved at the peak", "Highest memory that the caching allocator has reserved."),
    Term("floor", "Floor", "Lowest allocated memory of a step, median over the steps after the warm-up."),
)
"""Figures of memory that comparisons show."""
