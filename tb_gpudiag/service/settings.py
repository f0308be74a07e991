"""What the service may use: processes, time, memory, disk. Read from the environment, because TensorBoard's
own flags belong to TensorBoard and a clash of flags would stop it from starting.

    GPUDIAG_CACHE_DIR        where results are kept (default: the platform's cache directory)
    GPUDIAG_CACHE_MB         how much of the disk they may take
    GPUDIAG_TIME_LIMIT_S     how long one analysis may run
    GPUDIAG_MEMORY_LIMIT_MB  how much memory one analysis may take
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

MIB = 1024 * 1024

# Two, so that a long analysis does not hold up a short one; more would take the machine from the training
# job.
WORKERS = 2

# A trace of 500 MB takes some seconds; twenty minutes lets the largest ones on the slowest disks through.
TIME_LIMIT_S = 20 * 60.0

# A prepared trace takes some tens of megabytes: room for about a hundred.
CACHE_MB = 2048

# Two analyses at once must leave something to the rest of the machine.
SHARE_OF_MEMORY = 0.4

# Where the machine's memory cannot be known.
MEMORY_LIMIT_MB = 8192

logger = logging.getLogger("tensorboard")


@dataclass(frozen=True)
class Settings:
    """The bounds of the service. `cache_directory` is None where the platform offers none."""

    cache_directory: Path | None
    cache_bytes: int = CACHE_MB * MIB
    time_limit_s: float = TIME_LIMIT_S
    memory_limit_bytes: int = MEMORY_LIMIT_MB * MIB
    workers: int = WORKERS


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that the environment asks for; a value that is no positive number is named in the log and
    ignored."""
    memory_bytes = machine_memory_bytes()
    default_mb = memory_bytes * SHARE_OF_MEMORY / MIB if memory_bytes else float(MEMORY_LIMIT_MB)
    return Settings(
        cache_directory=_cache_directory(environment),
        cache_bytes=int(_positive(environment, "GPUDIAG_CACHE_MB", CACHE_MB) * MIB),
        time_limit_s=_positive(environment, "GPUDIAG_TIME_LIMIT_S", TIME_LIMIT_S),
        memory_limit_bytes=int(_positive(environment, "GPUDIAG_MEMORY_LIMIT_MB", default_mb) * MIB),
    )


def _positive(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        logger.warning("gpudiag: %s is no positive number; using %g", name, default)
        return default
    return value


def _cache_directory(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("GPUDIAG_CACHE_DIR", "")
    if named:
        return Path(named).expanduser().absolute()
    try:
        directory = platformdirs.user_cache_path("gpudiag", appauthor=False)
    except RuntimeError:  # no home directory
        return None
    # Older platformdirs take a relative XDG_CACHE_HOME, or "~" without a home directory, as it is.
    return directory if directory.is_absolute() else None


def machine_memory_bytes() -> int:
    """What this machine, or the container that this process runs in, has; 0 where it cannot be known."""
    try:
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        known = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            known.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no control group, or "max"
            continue
    return min((value for value in known if value > 0), default=0)
