"""Headers of the columns with numbers, the same on the page and in reports, and what the numbers are."""

from __future__ import annotations

from tb_gpudiag.wording.term import Term, table

COLUMNS = table(
    # Launches
    Term("launches", "Launches", "Number of launches. A graph launch counts once."),
    Term("launch_api", "Launch API", "Host time in the launch calls."),
    Term(
        "full_queue_time",
        "Blocked on a full queue",
        "Part of the time in launch calls. Not a problem: the host is ahead, and the GPU has work.",
    ),
    Term(
        "operator_overhead",
        "Operator overhead",
        "Time of the launching thread in operators, outside of calls, since its previous launch.",
    ),
    Term(
        "python_time",
        "Python",
        "Time of the launching thread outside of operators and calls, since its previous launch.",
    ),
    Term("gpu_time", "GPU time", "Time of the launched work on the GPU."),
    Term(
        "idle_gpu_share",
        "Launched on an idle GPU",
        "Share of the launches that found the GPU with no work left.",
    ),
    Term("idle_caused", "Idle caused", "GPU idle time that ended with one of these launches."),
    Term("idle_per_step", "Idle per step", "GPU idle time that these launches caused, per step."),
    # Engine steps
    Term("engine_steps", "Steps", "Runs of the model for a batch of requests, in the step window."),
    Term("engine_step_time", "Step time", "From a step's beginning to the next step's, median."),
    Term("engine_requests", "Requests", "Requests in a step, median."),
    Term("engine_tokens", "Tokens", "Tokens that the model computes in a step, median."),
    Term(
        "engine_rate",
        "Tokens/s",
        "Tokens of these steps by their time, without the time in which there was no batch to run.",
    ),
    Term("engine_busy", "GPU busy", "Share of the same time in which something ran on the GPU."),
    Term(
        "engine_gap",
        "Gap before",
        "From the end of all earlier work on the GPU to the start of the step's own first work, median.",
    ),
    Term(
        "idle_before",
        "Idle before steps",
        "GPU idle in the gaps before steps, while the engine was in this function.",
    ),
    Term("idle_inside", "Idle in steps", "GPU idle after the first work of a step, likewise."),
    Term("idle_of_window", "Share of step window", "Both, of the step window."),
    # Collectives
    Term("collective_calls", "Calls", "Number of collectives in the step window."),
    Term("message_size", "Size", "The larger of what goes in and what comes out, the median."),
    Term("collective_time", "Time", "Duration of these collectives, waiting for other ranks included."),
    Term("exposed_time", "Exposed", "Part of the time in which nothing computed."),
    # Launch queues
    Term("mean_depth", "Mean depth", "Launches that wait for the GPU, mean over the step window."),
    Term("median_depth", "Median depth", "Launches that wait for the GPU, median over the step window."),
    Term("max_depth", "Max depth", "Launches that wait for the GPU, maximum over the step window."),
    Term("queue_empty", "Empty", "Share of the step window in which no launch was waiting."),
    Term("not_linked", "Not linked", "Work without a launch in the trace. It counts from its start."),
    Term("blocked_launches", "Blocked on a full queue", "Launches that waited because the queue was full."),
    Term("blocked_time", "Time blocked", "Host time of the launches that waited because the queue was full."),
    # Kernels
    Term("kernels", "Kernels", "Number of kernels."),
    Term("kernel_time", "Time", "Sum of the kernels' durations."),
    Term(
        "kernel_share", "Share of step window", "Share of the step window in which at least one of them ran."
    ),
    Term(
        "tensor_cores",
        "On tensor cores",
        "Share of their time in kernels that use tensor cores, judging by their names.",
    ),
    # Operators against the roofline
    Term("calls", "Calls", "Number of calls that launched kernels."),
    Term(
        "beyond_roofline", "Beyond the roofline", "Time beyond what arithmetic and bytes take at the peaks."
    ),
    Term("teraflops", "Arithmetic", "FLOPs of the calls, divided by the time of their kernels."),
    Term("terabytes", "Memory", "Each input read once and each result written once, by the kernels' time."),
    Term(
        "of_roofline",
        "Of the roofline",
        "The least possible time at the stated peaks, as a share of the time.",
    ),
    # The host
    Term("host_time", "Time", "Time of the main host thread, each moment counted once."),
    Term("host_share", "Share of step window", "Share of the step window, on the main host thread."),
    Term("sync_calls", "Calls", "Number of calls that blocked the host."),
    Term("host_blocked", "Host blocked", "Host time inside the call, while it waits for the GPU."),
    Term("idle_after", "GPU idle after", "GPU idle time until the next launch arrives."),
    # torch.compile
    Term("compiled_before", "Before", "How often the function had been compiled before."),
    Term("compile_time", "Time", "Time of this compilation in the recording."),
    Term("break_runs", "Runs", "How often the code between the graphs ran in the step window."),
    Term(
        "between_graphs",
        "Between graphs",
        "Host time from the end of the graph before the break to the start of the function after it.",
    ),
    Term("graphless_runs", "Runs", "How often the function ran in the step window."),
    Term("graphless_time", "Host time", "Host time of these runs. A CUDA graph would replace most of it."),
    # Memory
    Term("growth", "Grows by", "What is still live of each step's allocations."),
    Term("still_live", "Still live at end", "Live at the end of the recording."),
    Term("live_after_range", "Live after range", "Live at the end of the range."),
    Term("live_count", "Allocations", "Number of allocations that are still live."),
    Term("median_size", "Size", "Median size of an allocation."),
    Term("live_steps", "Steps", "Steps with allocations that are still live."),
    Term("largest_free", "Largest free block", "Size of the largest free block."),
    # Fixes
    Term("saves", "Saves at most", "On top of the fixes above it."),
    Term("window_after", "Step window after it", "Its length with this fix and those above it."),
)
