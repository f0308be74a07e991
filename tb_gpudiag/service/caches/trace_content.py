"""Recognize a trace, whatever its path is for each user: by its name, size, time, first and last bytes.

The end of a compressed file is a checksum of its whole content, and writing a file sets its time.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

from tb_gpudiag.errors import TraceError
from tb_gpudiag.service.caches.cache import entry_key
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.source import is_remote

_END_BYTES: Final = 64 << 10


def content_key(kind: str, file: TraceFile) -> str:
    """Return the key of a result of this kind for all users of this version; "" if the file has none.

    A result with a log or a capture that its user named is not for others, and dumps are several files.
    The file is not opened: two traces may have the same key, but their fingerprints differ.
    """
    is_folder = file.kind in ("hang", "clock")
    is_shared = file.modified_ns and not is_folder and not file.torch_trace and not file.capture
    if is_remote(file.path) or not is_shared:
        return ""
    return entry_key(
        "content", kind, os.path.basename(file.path), str(file.size_bytes), str(file.modified_ns)
    )


def fingerprint(file: TraceFile) -> str:
    """Open the trace and return a hash that tells it from others: 32 hexadecimal digits.

    Return "" if this user cannot open it, or if it has changed since it was listed.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open_local(file.path, file.folder) as trace:
            status = os.fstat(trace.fileno())
            if (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.modified_ns):
                return ""
            digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
            digest.update(trace.read(_END_BYTES))
            trace.seek(max(status.st_size - _END_BYTES, 0))
            digest.update(trace.read(_END_BYTES))
    except (OSError, TraceError):
        return ""
    return digest.hexdigest()
