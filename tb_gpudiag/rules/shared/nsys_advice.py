"""How to record a better report with Nsight Systems, in place of the advice for torch.profiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from tb_gpudiag.facts.core.whole_graphs import WholeGraphs
from tb_gpudiag.rules.rule import Answer, CannotTell, Finding, Fix
from tb_gpudiag.rules.shared.recording_advice import PROFILER_URL
from tb_gpudiag.trace.events import Recorder
from tb_gpudiag.wording.format import sentences, share
from tb_gpudiag.wording.good_recording import (
    NSYS_RECORDING,
    NSYS_RECORDING_FOR_FIGURES,
    OPTIONS,
    RECORDING,
    RECORDING_FOR_FIGURES,
)

NSYS_URL = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"

# From here on, what is true of the other kernels may not be true of the job.
HIDING_SHARE = 0.10

_BLOCKS = {RECORDING: NSYS_RECORDING, RECORDING_FOR_FIGURES: NSYS_RECORDING_FOR_FIGURES}

_NSYS = OPTIONS["nsys"]

# What an advice asks of torch.profiler, and what gives the same in Nsight Systems. The first match counts.
_INSTEAD = (
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

# The same for the lines of a fix. A paragraph that has none of these stays.
_COMMANDS = (
    ("with_stack", f"nsys profile {_NSYS['gpu']} --sample=process-tree --cudabacktrace=all \\\n"
     "#     --python-backtrace=cuda -o my_run python -X perf train.py"),
    ("schedule(", f"nsys profile {_NSYS['gpu']} --capture-range=cudaProfilerApi -o my_run python train.py"),
    ("_ExperimentalConfig", f"nsys profile {_NSYS['gpu']} -o my_run python train.py"),
)  # fmt: skip


def for_recorder(answer: Answer, recorder: Recorder) -> Answer:
    """Return the answer with advice for this recorder."""
    if recorder != "nsys":
        return answer
    if isinstance(answer, CannotTell):
        return replace(answer, how_to_record=_instead(answer.how_to_record))
    if isinstance(answer, Finding):
        return _with_fix(answer)
    return [_with_fix(finding) for finding in answer] if isinstance(answer, list) else answer


def sentences_for(text: str, recorder: Recorder) -> str:
    """Return a text with the sentences about options of torch.profiler replaced."""
    if recorder != "nsys":
        return text
    return " ".join(map(_instead, sentences(text)))


def _with_fix(finding: Finding) -> Finding:
    fix = finding.fix
    code = _BLOCKS.get(fix.code) or "\n\n".join(_paragraphs(fix.code))
    url = NSYS_URL if fix.url == PROFILER_URL else fix.url
    return replace(finding, fix=Fix(sentences_for(fix.text, "nsys"), code, url))


def _paragraphs(code: str) -> Iterator[str]:
    """Yield the paragraphs of a fix, those about torch.profiler as commands below their comments."""
    commands = set()
    for paragraph in code.split("\n\n"):
        command = next((text for asked, text in _COMMANDS if asked in paragraph), None)
        if command is None:
            yield paragraph
        elif command not in commands:
            commands.add(command)
            comments = takewhile(lambda line: line.startswith("#"), paragraph.split("\n"))
            yield "\n".join([*comments, f"# {command}"])


def unseen_kernels(graphs: WholeGraphs, window_ns: int) -> CannotTell | None:
    """Say that the kernels inside graphs are not known; None if that does not matter."""
    if graphs.times.total < HIDING_SHARE * max(1, window_ns):
        return None
    return CannotTell(
        f"the kernels inside CUDA graphs, {share(graphs.times.total, window_ns)} of the step window, were "
        "not recorded",
        "Record with nsys profile --cuda-graph-trace=node.",
    )


def _instead(advice: str) -> str:
    return next((text for asked, text in _INSTEAD if asked in advice), advice)
