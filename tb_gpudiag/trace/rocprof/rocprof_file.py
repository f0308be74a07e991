"""Files of rocprofv3: how to tell them. rocprof.py reads them, and imports much more."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace

_START: Final = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')


def is_rocprof(head: bytes) -> bool:
    """Return whether a file that starts like this is JSON of rocprofv3."""
    return _START.match(head) is not None


def refuse_rocprof(first: bytes, path: str) -> None:
    """Raise NotATrace for JSON of rocprofv3, where events of torch.profiler are copied one by one."""
    if is_rocprof(first):
        raise NotATrace(
            "it is JSON of rocprofv3, and only traces of torch.profiler can be copied event by event",
            where=path,
            remedy="record with rocprofv3 --output-format pftrace as well, and open that with Perfetto",
        )
