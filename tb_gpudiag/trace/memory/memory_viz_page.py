"""Extract the snapshot from a page that torch.cuda._memory_viz wrote (`trace_plot`, `segment_plot`): an HTML
file with the pickle in base64."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.vocabulary.patterns import lazy_re

_PAGE: Final = lazy_re(
    rb"\s*(?:<!DOCTYPE html>\s*)?<html\b(?s:.{0,2000}?)add_local_files(?s:.{0,1000}?)"
    rb"local_files\s*=\s*\[\s*\{[^{}\[\]]{0,1000}?\"base64\"\s*:\s*\"",
    re.IGNORECASE,
)
_REMEDY: Final = "name a file that torch.cuda.memory._dump_snapshot wrote"


def is_memory_viz_page(head: bytes) -> bool:
    """Return whether a file that starts like this is a page of torch.cuda._memory_viz."""
    return _PAGE.match(head) is not None


def pickle_of_page(data: bytes, path: str) -> bytes:
    """Return the pickle in a page for which is_memory_viz_page is true. Raises NotATrace."""
    begins = _PAGE.match(data)
    start = begins.end() if begins is not None else 0
    end = data.find(b'"', start)
    if end < 0:
        raise NotATrace(
            "the page ends in the middle of its snapshot",
            where=path,
            remedy="if it is still being written, try again later; otherwise save it again",
        )
    try:
        return base64.b64decode(memoryview(data)[start:end], validate=True)
    except binascii.Error:
        raise NotATrace("the snapshot in the page is damaged", where=path, remedy=_REMEDY) from None
