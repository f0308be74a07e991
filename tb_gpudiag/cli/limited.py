"""The limits on memory and time of a command that reads one file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tb_gpudiag.errors import is_out_of_memory
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from


@contextlib.contextmanager
def limited(where: str) -> Iterator[None]:
    """Raise LimitReached if the code inside takes too long or too much memory. where: the file."""
    limit = AnalysisLimit(command_memory_limit_bytes(), settings_from().time_limit_s)
    try:
        with limit.watched(where):
            yield
    except Exception as error:
        if is_out_of_memory(error):
            raise limit.error(where) from error
        raise
