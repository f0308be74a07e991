"""A folder that lives as long as the process, in memory if it can be: to write a small file to a disk, or to
make a folder for it, takes longer than to read it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

_IN_MEMORY = "/dev/shm"


@cache
def scratch() -> Path:
    folder = Path(
        tempfile.mkdtemp(prefix="gpudiag-fuzz-", dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None)
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
