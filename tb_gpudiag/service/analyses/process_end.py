"""What the end of an analysis process means, and its last output."""

from __future__ import annotations

import logging
import subprocess

from tb_gpudiag.errors import GpudiagError, JobFailed
from tb_gpudiag.service.analyses.protocol import Done, Failed

# How much of the last output of a failed process goes to the log.
LAST_OUTPUT_BYTES = 2000

logger = logging.getLogger("tensorboard")


def why_no_result(outcome: Done | Failed | None, code: int, where: str) -> GpudiagError:
    """Return why a process that was not stopped has no result. where: the file that it read."""
    if isinstance(outcome, Failed):
        return outcome.error
    if isinstance(outcome, Done):
        return JobFailed(
            "The result is not where it was saved.",
            where=outcome.draft,
            remedy="Another program may delete files there: set GPUDIAG_CACHE_DIR to another directory.",
        )
    return JobFailed(
        f"The analysis process ended unexpectedly ({_exit_text(code)}).",
        where=where,
        remedy="The system may have run out of memory: close other programs, or record fewer steps. "
        "TensorBoard's log has the process's last output.",
    )


def log_last_output(last_output: bytes, code: int) -> None:
    """Log the last output of a process that failed."""
    text = last_output.decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text).strip()
    logger.warning(
        "gpudiag: an analysis process ended with %s. Its last output:\n%s", _exit_text(code), shown
    )


def listen(process: subprocess.Popen[bytes], last_output: list[bytes]) -> None:
    """Read stderr, so that the process never blocks on it, and keep the end."""
    assert process.stderr is not None
    kept = b""
    while chunk := process.stderr.read1(4096):  # type: ignore[attr-defined]
        kept = (kept + chunk)[-LAST_OUTPUT_BYTES:]
    last_output.append(kept)


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
