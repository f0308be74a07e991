"""Files that are known by how they start, and cannot be read: what each is, and what to name instead."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.kineto import kineto

# A tree of Triton's proton, whose keys are sorted: `children`, `frame`, `metrics`.
_HATCHET_START: Final = re.compile(rb'\s*\[\s*\{\s*"(children"\s*:\s*\[|frame"\s*:\s*\{\s*"name")')
# Each packet of Perfetto's binary traces: the tag of field 1, and a length of up to five bytes.
_PACKET: Final = re.compile(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])", re.DOTALL)
_PACKETS_SEEN: Final = 3
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # not in text
_OPENINGS: Final = (b"{", b"[", b"<")


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
    elif is_perfetto(head):
        said = "it is a binary trace of Perfetto, which is not read"
        remedy = (
            "write the same as JSON: export_chrome_trace to a name ending in .json.gz, or rocprofv3 "
            "--output-format json"
        )
    if said:
        raise NotATrace(said, where=path, remedy=remedy)


def is_perfetto(head: bytes) -> bool:
    """Return whether a file that starts like this is a list of Perfetto's packets."""
    if head.lstrip()[:1] in _OPENINGS or _BINARY.search(head) is None:
        return False
    at = seen = 0
    while at < len(head) and seen < _PACKETS_SEEN:
        found = _PACKET.match(head, at)
        if found is None:
            return False
        length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(found[1]))
        at, seen = found.end() + length, seen + 1
    return seen > 0
