"""The words for time: what the GPU does, why it is idle, what limits a job, how much it matters.

With kinds.py the one source for the command line, the HTML report and the page: `make wire` writes both to
the frontend's `base/vocabulary.ts`. Ids come from the enums of facts/ and from report.proto; a test compares
them.
"""

from __future__ import annotations

from tb_gpudiag.wording.term import Term, table, term

WORK_PARTS = table(
    Term(
        "computing",
        "Computing",
        "The GPU runs kernels other than collectives. Without a GPU: the CPU runs operators.",
    ),
    Term("copying", "Copying, exposed", "The GPU runs copies or memsets and nothing else."),
    Term(
        "communicating",
        "Communicating, exposed",
        "The GPU runs collectives and nothing computes at the same time.",
    ),
)
"""What the GPU does when it is not idle."""

CAUSES = table(
    Term("input", "Data loading", "The host loads the next batch while the GPU waits."),
    Term("compile", "Compilation", "The host compiles, captures or loads GPU code while the GPU waits."),
    Term(
        "initialization",
        "Initialization",
        "The host does first-run work, such as creating the CUDA context or a loader, while the GPU waits.",
        phrase="first-run work",
    ),
    Term(
        "sync",
        "Synchronization",
        "The host is blocked in a call that waits for the GPU, so it launches nothing.",
    ),
    Term(
        "allocator",
        "Memory allocation",
        "The host is inside cudaMalloc, cudaFree or a host allocation while the GPU waits.",
    ),
    Term(
        "collective",
        "Collective call",
        "The host is inside a collective call while the GPU waits.",
        phrase="collective calls",
    ),
    Term(
        "python",
        "Python",
        "Python code between operators runs on the host while the GPU waits.",
        phrase="Python between operators",
    ),
    Term("dispatch", "CPU operator overhead", "Operators prepare work on the CPU while the GPU waits."),
    Term("launch", "Launch calls", "The host is inside the launch call itself."),
    Term(
        "latency",
        "Launch latency",
        "The launch call has returned, or the previous kernel has ended, and the next one has not started.",
    ),
    Term(
        "graph",
        "Between graph nodes",
        "A node of a CUDA graph has ended, and the next one has not started. The host has no part in it.",
        phrase="gaps between graph nodes",
    ),
    Term(
        "queued",
        "Queued, cause not visible",
        "Work was already launched. The trace does not show why it did not start.",
        phrase="queued work (cause not visible)",
    ),
    Term(
        "unlinked",
        "No launch recorded",
        "The trace does not show which call launched the work that ended the gap.",
        phrase="work without a recorded launch",
    ),
    Term("profiler", "Profiler overhead", "The profiler itself keeps the host busy."),
    Term(
        "host",
        "Host, not recorded",
        "The host is between two calls, and the trace has neither operators nor Python code.",
        phrase="host work that was not recorded",
    ),
    Term(
        "unrecorded",
        "Unrecorded work",
        "The GPU runs work that the trace lacks: from before the recording, or in a CUDA graph.",
        phrase="unrecorded work",
    ),
    Term(
        "requests",
        "No batch to run",
        "The inference server has no request left, or a worker waits for the batch of its engine's process.",
    ),
)
"""Why a GPU is idle."""

TRIGGERS = table(
    Term(
        "drained",
        "Queue drained",
        "A synchronization had emptied the launch queue.",
        phrase="a synchronization had emptied the queue",
    ),
    Term(
        "starved",
        "Queue starved",
        "The host never got ahead of the GPU.",
        phrase="the host never got ahead of the GPU",
    ),
    Term(
        "queued",
        "Work queued",
        "Work was queued but did not start.",
        phrase="work was queued but did not start",
    ),
    Term(
        "unknown",
        "Trigger not visible",
        "The trace does not show what led to the gap.",
        phrase="the trace does not show what led to it",
    ),
)
"""What let the launch queue run dry before a gap."""

LIMITERS = table(
    Term("input", "Data loading", "The GPU waits for the next batch.", phrase="waiting for data"),
    Term(
        "launch",
        "Kernel launches",
        "Many small kernels: the GPU waits for the host to launch them, or between nodes of a CUDA graph.",
    ),
    Term(
        "sync",
        "Synchronization",
        "The host waits for the GPU, and the GPU then waits for new work.",
        phrase="synchronizations",
    ),
    Term("python", "Work on the host", "The GPU waits for Python code or operators on the host."),
    Term("compile", "Compilation", "The GPU waits while the host compiles or loads GPU code."),
    Term("compute", "GPU computing", "The GPU computes most of the time. Faster kernels help most."),
    Term(
        "copy",
        "Copies",
        "The GPU copies data and computes nothing at the same time.",
        phrase="exposed copies",
    ),
    Term(
        "communication",
        "Communication",
        "The GPU communicates, or waits for a collective, and computes nothing at the same time.",
    ),
    Term(
        "memory",
        "Memory",
        "The job waits for memory from the driver, or ran out of it.",
        phrase="memory allocation",
    ),
    Term(
        "initialization",
        "Initialization",
        "Most of the recorded time is first-run work. Record later steps.",
        phrase="first-run work",
    ),
    Term(
        "requests",
        "No requests",
        "The inference server had nothing to run: the GPU waits for requests.",
        phrase="waiting for requests",
    ),
    Term("mixed", "Several causes", "No single cause is clearly the largest."),
    Term(
        "unknown",
        "Not known",
        "The trace does not show the cause.",
        phrase="idle time without a visible cause",
    ),
)
"""What the job would have to do less of to become faster."""

SEVERITIES = table(
    Term("INFO", "Info", "Worth knowing. It costs little or nothing."),
    Term("WARNING", "Warning", "Costs enough to be worth a fix."),
    Term("ERROR", "Error", "Costs a large share of the time, and at least 10 ms, or ends the job."),
)
"""How much a finding matters, as in report.proto."""


def limiter_word(limiter: str, *, on_gpu: bool) -> str:
    """Return the word for a limiter. Without a GPU, computing is the CPU's."""
    if limiter == "compute" and not on_gpu:
        return "CPU computing"
    return term(LIMITERS, limiter).word
