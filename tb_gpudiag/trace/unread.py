"""Files that cannot be read: what each is, and what to name instead.

Some are known by how they start. Others are traces in torch.profiler's JSON format that another program
wrote: what is an operator, a call or a kernel is known by its category alone, so nothing can be read of them.
"""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.events import Events, Trace
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category

# A tree of Triton's proton, whose keys are sorted: `children`, `frame`, `metrics`.
_HATCHET_START: Final = lazy_re(rb'\s*\[\s*\{\s*"(children"\s*:\s*\[|frame"\s*:\s*\{\s*"name")')

# The span that torch.profiler writes around each recording, even where nothing else happened.
_OWN_SPAN: Final = lazy_re(r"PyTorch Profiler \(\d+\)")

# Some of its events have a category that torch 1.8 had, too: `Kernel`.
_ONNX: Final = ("a profile of ONNX Runtime", lazy_re(rb'"cat"\s*:\s*"Session"'))

_WRITERS: Final = (
    _ONNX,
    (
        "an export of torch.autograd.profiler, which has no launches",
        lazy_re(rb'"pid"\s*:\s*"(CPU|CUDA) functions"', re.IGNORECASE),
    ),
    ("torch.compile's log of its own time", lazy_re(rb'"cat"\s*:\s*"dynamo_timed"')),
    ("a profile of the inside of kernels by Triton", lazy_re(rb'"pid"\s*:\s*"[^"]{0,999} CTA\d+"')),
    ("a trace of NCCL's profiler plug-in", lazy_re(rb'"cat"\s*:\s*"(GROUP_API|KERNEL_LAUNCH)"')),
    (
        "a profile of TensorFlow or JAX",
        lazy_re(rb'"/(device:|host:CPU|job:)|"cat"\s*:\s*"(Op|DataFlow)"|"tf_op"'),
    ),
    ("a trace of Chrome", lazy_re(rb'"cat"\s*:\s*"(__metadata|[\w.,-]{0,99}devtools\.)')),
    ("a trace of VizTracer", lazy_re(rb'"viztracer_metadata"|"cat"\s*:\s*"FEE"')),
    ("a profile of ROCm's rocprof", lazy_re(rb'"BeginNs"|"\d+ (CPU H\w+ API|GPU\d+)"')),
)  # fmt: skip
"""What it looks like, and its sign in the first events. The first match counts."""

_REMEDY: Final = (
    "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), and write "
    "the file with tensorboard_trace_handler or export_chrome_trace"
)


def refuse_unread(head: bytes, path: str) -> None:
    """Raise NotATrace for a file that starts like one that cannot be read."""
    said, remedy = "", ""
    if head.lstrip()[:1] == b"<":
        said = "it is an HTML page, but not one of torch.cuda._memory_viz"
        remedy = "export a memory timeline to a name ending in .raw.json.gz instead"
    elif kineto.is_execution_trace(head):
        said = (
            "it is an execution trace (ExecutionTraceObserver): it has operators and their inputs, but no "
            "time on the GPU"
        )
        remedy = (
            "name the profiler's trace of the same steps, which tensorboard_trace_handler or "
            "export_chrome_trace writes"
        )
    elif _HATCHET_START.match(head):
        said = "it is a tree of Triton's proton: the sum of each kernel, and not when the kernels ran"
        remedy = 'record with proton.start(NAME, data="trace"), or with torch.profiler'
    if said:
        raise NotATrace(said, where=path, remedy=remedy)


def refuse_foreign(trace: Trace, top_level: bool, head: bytes, path: str) -> None:
    """Raise NotATrace if another program wrote this trace.

    top_level: the file has top-level values of torch.profiler's. head: its first events.
    """
    ours = top_level or len(trace.memory) > 0 or _has_category(trace.events) or not trace.events_read
    written_by = (name for name, sign in (_WRITERS if not ours else [_ONNX]) if sign.search(head))
    looks_like = next(written_by, "" if ours else "another program's trace, or one written by hand")
    if looks_like:
        said = f"it is not a recording of torch.profiler: it looks like {looks_like}"
        raise NotATrace(said, where=path, remedy=_REMEDY)


def _has_category(events: Events) -> bool:
    known = bool((events.category != Category.OTHER).any())
    return known or any(_OWN_SPAN.fullmatch(name) for name in events.names)
