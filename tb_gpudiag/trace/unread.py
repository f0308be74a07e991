"""Files that are known by how they start, and cannot be read: what each is, and what to name instead."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.kineto import kineto

# A tree of Triton's proton, whose keys are sorted: `children`, `frame`, `metrics`.
_HATCHET_START: Final = re.compile(rb'\s*\[\s*\{\s*"(children"\s*:\s*\[|frame"\s*:\s*\{\s*"name")')


def refuse_unread(head: bytes, path: str) -> None:
    """Raise NotATrace for a file that starts like one of those."""
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
