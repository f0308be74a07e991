"""What a recording lacks, and how to record it: with torch.profiler or with Nsight Systems."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tb_gpudiag.rules.answer import NO_GPU, CannotTell, Finding, Fix, RuleAnswer, with_findings
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.recorded import Recorder
from tb_gpudiag.wording.format import count, sentences, share, time_ns
from tb_gpudiag.wording.good_recording import (
    NSYS_RECORDING,
    NSYS_RECORDING_FOR_FIGURES,
    OPTIONS,
    RECORDING,
    RECORDING_FOR_FIGURES,
)

if TYPE_CHECKING:
    from tb_gpudiag.facts.core.graphs import WholeGraphs
    from tb_gpudiag.facts.core.recording import Recorded
    from tb_gpudiag.facts.facts import Facts
    from tb_gpudiag.facts.waiting.gpu_use import GpuUse

PROFILER_URL = "https://docs.pytorch.org/docs/stable/profiler.html"
NSYS_URL = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"


_BLOCKS = {RECORDING: NSYS_RECORDING, RECORDING_FOR_FIGURES: NSYS_RECORDING_FOR_FIGURES}

_NSYS = OPTIONS["nsys"]
_ONLY_TORCH: Set[Recorder] = frozenset({"torch"})

# What an advice asks of torch.profiler, and what gives the same in Nsight Systems. The first match counts.
_INSTEAD = (
    (
        "on all ranks at once",
        "Record at least five steps on all ranks at once, each an NVTX range named step: begin with "
        "torch.cuda.profiler.start() in the same step on all ranks, and --capture-range=cudaProfilerApi.",
    ),
    (
        "step the profiler",
        "Start the recordings together: call torch.cuda.profiler.start() in the same step on all ranks, "
        "after a barrier.",
    ),
    ("torch 2.5 or later", "Start the recording of all ranks in the same step."),
    ("prof.step()", 'Mark each step: torch.cuda.nvtx.range_push("step"), and range_pop() at its end.'),
    ("schedule(", "Record several steps after warming up, and mark each as an NVTX range named step."),
    ("wait and warmup", "Begin to record after a few steps: --capture-range=cudaProfilerApi."),
    (
        "fewer of with_stack",
        "Record without emit_nvtx and with --sample=none, and take the figures from that.",
    ),
    (
        "with_stack",
        "Run python -X perf (3.12 or later) and record with --sample=process-tree --cudabacktrace=all "
        "--python-backtrace=cuda: then calls have their functions. For lines, record with torch.profiler and "
        "with_stack=True, too.",
    ),
    ("record_shapes", f"Record inside {_NSYS['shapes']}."),
    (
        "profile_memory",
        f"Record with {_NSYS['memory']} for the driver's allocations, or with torch.profiler "
        "and profile_memory=True for those of torch.",
    ),
    ("ProfilerActivity", f"Record with {_NSYS['gpu']} on a machine with a GPU."),
)

# The same for rocprofv3. It has no option for the others.
_ROCPROF = (
    ("prof.step()", f"Mark each step: {OPTIONS['rocprof']['steps']}."),
    ("CPU and CUDA activities together", "Record the calls, too: --hip-runtime-trace."),
    ("both ProfilerActivity", "Record the calls, too: --hip-runtime-trace."),
    ("ProfilerActivity.CPU", "Record operators: torch.autograd.profiler.emit_nvtx(), and --marker-trace."),
    ("ProfilerActivity", f"Record with {OPTIONS['rocprof']['gpu']} on a machine with a GPU."),
)

# The same for the lines of a fix. A paragraph that has none of these stays.
_COMMANDS = (
    ("steps on all ranks", f"nsys profile {_NSYS['gpu']} --capture-range=cudaProfilerApi \\\n"
     "#     -o my_run_%q{RANK} python train.py"),
    ("profiler.step()", f"""nsys profile {_NSYS['gpu']} --capture-range=cudaProfilerApi \\
#     -o my_run_%q{{RANK}} python train.py
if step == 5:
    torch.distributed.barrier()
    torch.cuda.profiler.start()"""),
    ("with_stack", f"nsys profile {_NSYS['gpu']} --sample=process-tree --cudabacktrace=all \\\n"
     "#     --python-backtrace=cuda -o my_run python -X perf train.py"),
    ("schedule(", f"nsys profile {_NSYS['gpu']} --capture-range=cudaProfilerApi -o my_run python train.py"),
    ("_ExperimentalConfig", f"nsys profile {_NSYS['gpu']} -o my_run python train.py"),
)  # fmt: skip

# The smallest job in public traces has 61 kernels and copies in 0.3 ms: one pass of a small BERT. Tests of
# the profiler have 5 of them in 0.05 ms, and a call that failed as it prepared its inputs 30 in 0.13 ms.
# A few long kernels are work enough, and so are several steps, and a marked step of a training: a public one
# of a network of two layers has 32 in 0.05 ms.
FEWEST_WORK = 40
LEAST_BUSY_NS = 1_000_000


SEVERAL_STEPS = 2


def record_again(text: str) -> Fix:
    return Fix(text, RECORDING, PROFILER_URL)


_ONE_TRACER = (
    "Use one GPU profiler at a time (no Nsight, no DCGM profiling), and check that the driver lets this user "
    "trace the GPU."
)


def recording_gpu(use: GpuUse) -> str:
    """Say how to record the activity of a GPU. CUPTI and roctracer record the calls, too: where they did, the
    activity was on."""
    ways = (
        (not use.possible, NO_GPU.how_to_record),
        (use.counted, "For times, record with ProfilerActivity.CUDA, without profiler_metrics, warmed up."),
        (
            use.launches,
            "Calls of the CUDA or HIP runtime were recorded: ProfilerActivity.CUDA was on, and the driver "
            f"gave the tracer (CUPTI, roctracer) no activity. {_ONE_TRACER} Update the driver, and on "
            "WSL that of Windows.",
        ),
        (use.listed or use.operators, f"Record with ProfilerActivity.CUDA. {_ONE_TRACER}"),
        (True, f"Record with ProfilerActivity.CUDA, or on a Mac with torch.mps.profiler. {_ONE_TRACER}"),
    )
    return next(way for holds, way in ways if holds)


def no_gpu(facts: Facts) -> CannotTell:
    """Say that the trace has no GPU activity, and how to record it."""
    return replace(NO_GPU, how_to_record=recording_gpu(facts.gpu_use))


def gpu_memory_not_recorded(facts: Facts) -> CannotTell:
    """Say why nothing is known about GPU memory."""
    return no_gpu(facts) if facts.device is None else memory_not_recorded(facts.recorded)


def memory_not_recorded(recorded: Recorded) -> CannotTell:
    """Say why nothing is known about a device's memory."""
    if recorded.memory:
        return CannotTell("the trace has no memory events of this device")
    return CannotTell(
        "no memory events were recorded",
        "Record five steps or more with profile_memory=True, or torch.cuda.memory._record_memory_history().",
    )


def little_work(facts: Facts) -> str:
    """Describe the recorded GPU work if there is too little to judge a job by, else return ""."""
    device = facts.device
    trains = len(facts.recorded_steps) > 0 and facts.job.training is True
    if device is None or trains or len(facts.steps) >= SEVERAL_STEPS:
        return ""
    account, pieces = device.window_account, len(device.busy.work)
    busy_ns = int(account.computing_ns[0] + account.communicating_ns[0] + account.copying_ns[0])
    recorded_ns = facts.recorded_window.duration_ns  # its steady part may be that little work alone
    if pieces >= FEWEST_WORK or busy_ns >= LEAST_BUSY_NS or busy_ns >= levels.HALF * recorded_ns:
        return ""
    verb = "was" if pieces == 1 else "were"
    return f"{count(pieces, 'kernel or copy', 'kernels and copies')} ({time_ns(busy_ns)}) {verb} recorded"


def for_recorders(answer: RuleAnswer, recorders: Set[Recorder]) -> RuleAnswer:
    """Return the answer with advice for these recorders. Ranks of a job may differ in theirs."""
    if recorders == _ONLY_TORCH:
        return answer
    if isinstance(answer, CannotTell):
        return replace(answer, how_to_record=_advice(answer.how_to_record, recorders))
    return with_findings(answer, lambda finding: _with_fix(finding, recorders))


def sentences_for(text: str, recorders: Set[Recorder]) -> str:
    """Return a text with the sentences about options of torch.profiler replaced."""
    if recorders == _ONLY_TORCH:
        return text
    return " ".join(_advice(sentence, recorders) for sentence in sentences(text))


def _advice(advice: str, recorders: Set[Recorder]) -> str:
    instead = next((text for asked, text in _INSTEAD if asked in advice), advice)
    if "nsys" not in recorders:
        own = next((text for asked, text in _ROCPROF if asked in advice), "")
        return own or (f"With torch.profiler: {advice}" if instead != advice else advice)
    if instead == advice or "torch" not in recorders:
        return instead
    return f"With torch.profiler: {advice} With Nsight Systems: {instead}"


def _with_fix(finding: Finding, recorders: Set[Recorder]) -> Finding:
    fix = finding.fix
    if "nsys" not in recorders:  # the code of the fix names torch.profiler itself
        return replace(finding, fix=replace(fix, text=sentences_for(fix.text, recorders)))
    both = "torch" in recorders
    code = _BLOCKS.get(fix.code)
    if code is None:
        code = "\n\n".join(_paragraphs(fix.code, both=both))
    elif both:
        code = f"{fix.code}\n\n{code}"
    url = NSYS_URL if fix.url == PROFILER_URL and not both else fix.url
    return replace(finding, fix=Fix(sentences_for(fix.text, recorders), code, url))


def _paragraphs(code: str, *, both: bool) -> Iterator[str]:
    """Yield the paragraphs of a fix, those about torch.profiler as commands below their comments. both: in
    front of these, the paragraphs themselves."""
    commands = set()
    for paragraph in code.split("\n\n"):
        command = next((text for asked, text in _COMMANDS if asked in paragraph), None)
        if command is None or both:
            yield paragraph
        if command is not None and command not in commands:
            commands.add(command)
            comments = takewhile(lambda line: line.startswith("#"), paragraph.split("\n"))
            yield "\n".join([*comments, f"# {command}"])


def unseen_kernels(graphs: WholeGraphs, window_ns: int) -> CannotTell | None:
    """Say that the kernels inside graphs are not known; None if that does not matter."""
    if graphs.times.total < levels.SIZEABLE * max(1, window_ns):
        return None
    return CannotTell(
        f"the kernels inside CUDA graphs, {share(graphs.times.total, window_ns)} of the step window, were "
        "not recorded",
        "Record with nsys profile --cuda-graph-trace=node.",
    )
