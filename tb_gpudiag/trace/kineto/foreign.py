"""Traces that other programs write in the same JSON format: nothing in them is torch.profiler's.

What is an operator, a call or a kernel is known by its category alone, so nothing can be read from them.
"""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.events import Events, Trace
from tb_gpudiag.vocabulary.recorded import Category

# The span that torch.profiler writes around each recording, even where nothing else happened.
_OWN_SPAN: Final = re.compile(r"PyTorch Profiler \(\d+\)")

# Some of its events have a category that torch 1.8 had, too: `Kernel`.
_ONNX: Final = ("a profile of ONNX Runtime", re.compile(rb'"cat"\s*:\s*"Session"'))

_WRITERS: Final = (
    _ONNX,
    (
        "an export of torch.autograd.profiler, which has no launches",
        re.compile(rb'"pid"\s*:\s*"(CPU|CUDA) functions"', re.IGNORECASE),
    ),
    ("torch.compile's log of its own time", re.compile(rb'"cat"\s*:\s*"dynamo_timed"')),
    ("a profile of the inside of kernels by Triton", re.compile(rb'"pid"\s*:\s*"[^"]{0,999} CTA\d+"')),
    ("a trace of NCCL's profiler plug-in", re.compile(rb'"cat"\s*:\s*"(GROUP_API|KERNEL_LAUNCH)"')),
    (
        "a profile of TensorFlow or JAX",
        re.compile(rb'"/(device:|host:CPU|job:)|"cat"\s*:\s*"(Op|DataFlow)"|"tf_op"'),
    ),
    ("a trace of Chrome", re.compile(rb'"cat"\s*:\s*"(__metadata|[\w.,-]{0,99}devtools\.)')),
    ("a trace of VizTracer", re.compile(rb'"viztracer_metadata"|"cat"\s*:\s*"FEE"')),
    ("a profile of ROCm's rocprof", re.compile(rb'"BeginNs"|"\d+ (CPU H\w+ API|GPU\d+)"')),
)  # fmt: skip
"""What it looks like, and its sign in the first events. The first match counts."""

_REMEDY: Final = (
    "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), and write "
    "the file with tensorboard_trace_handler or export_chrome_trace"
)


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
