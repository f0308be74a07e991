"""Limits of the service: processes, time, memory and disk.

They are set by environment variables. Flags could clash with those of TensorBoard or of another plugin, and
then TensorBoard would not start.

    GPUDIAG_CACHE_DIR        directory for results (default: gpudiag in the user's cache directory)
    GPUDIAG_CACHE_MB         disk space for results
    GPUDIAG_SHARED_CACHE_DIR  directory for results that other users share (default: none)
    GPUDIAG_SHARED_CACHE_MB  disk space for shared results
    GPUDIAG_TIME_LIMIT_S     time limit of one analysis, in TensorBoard and in commands
    GPUDIAG_MEMORY_LIMIT_MB  memory limit of one analysis, in TensorBoard and in commands
    GPUDIAG_ANALYZE_AT_START  so many of the newest runs are analyzed before anyone opens the page (none)
    GPUDIAG_SOURCE_ROOT      folder whose lines of code findings may show (none)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from tb_gpudiag.frozen import dataclass

MIB = 1024 * 1024

# Two, so that a long analysis does not block a short one. More would slow down the training job.
WORKERS = 2

# A trace of 500 MB takes seconds. Twenty minutes are enough for the largest traces on the slowest disks.
TIME_LIMIT_S = 20 * 60.0

# A result takes tens of megabytes, so there is room for about a hundred.
CACHE_MB = 2048

# For a whole team: about a thousand results.
SHARED_CACHE_MB = 20_480

# Two analyses at once must leave memory to other programs.
SHARE_OF_MEMORY = 0.4

# A command analyzes one file at a time.
SHARE_OF_MEMORY_OF_COMMAND = 0.8

# Used if the memory of the machine is unknown.
MEMORY_LIMIT_MB = 8192

MOST = 1e9
"""Of seconds and megabytes: more than anybody has, and not too much for timers."""

logger = logging.getLogger("tensorboard")


@dataclass(frozen=True)
class Settings:
    """Limits of the service.

    cache_directory: None if the user has no cache directory.
    shared_directory: None if results are not shared.
    analyze_at_start: so many runs are analyzed when TensorBoard starts.
    source_root: folder whose lines of code findings may show; None to show none.
    """

    cache_directory: Path | None
    cache_bytes: int = CACHE_MB * MIB
    time_limit_s: float = TIME_LIMIT_S
    memory_limit_bytes: int = MEMORY_LIMIT_MB * MIB
    workers: int = WORKERS
    shared_directory: Path | None = None
    shared_bytes: int = SHARED_CACHE_MB * MIB
    analyze_at_start: int = 0
    source_root: Path | None = None


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from environment variables. Ignore limits out of range, with a warning."""
    return Settings(
        cache_directory=_cache_directory(environment),
        cache_bytes=int(_positive(environment, "GPUDIAG_CACHE_MB", CACHE_MB) * MIB),
        time_limit_s=_positive(environment, "GPUDIAG_TIME_LIMIT_S", TIME_LIMIT_S),
        memory_limit_bytes=_memory_limit_bytes(environment, SHARE_OF_MEMORY),
        shared_directory=_named_path(environment, "GPUDIAG_SHARED_CACHE_DIR"),
        shared_bytes=int(_positive(environment, "GPUDIAG_SHARED_CACHE_MB", SHARED_CACHE_MB) * MIB),
        analyze_at_start=int(_positive(environment, "GPUDIAG_ANALYZE_AT_START", 0)),
        source_root=_named_path(environment, "GPUDIAG_SOURCE_ROOT"),
    )


def command_memory_limit_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the memory limit of a command, which GPUDIAG_MEMORY_LIMIT_MB sets, too."""
    return _memory_limit_bytes(environment, SHARE_OF_MEMORY_OF_COMMAND)


def _memory_limit_bytes(environment: Mapping[str, str], share: float) -> int:
    memory_bytes = machine_memory_bytes()
    default_mb = memory_bytes * share / MIB if memory_bytes else float(MEMORY_LIMIT_MB)
    return int(_positive(environment, "GPUDIAG_MEMORY_LIMIT_MB", default_mb) * MIB)


def _positive(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST:
        logger.warning("gpudiag: %s is not above 0 and at most %g; using %g", name, MOST, default)
        return default
    return value


def _cache_directory(environment: Mapping[str, str]) -> Path | None:
    named = _named_path(environment, "GPUDIAG_CACHE_DIR")
    if named is not None:
        return named
    try:
        directory = platformdirs.user_cache_path("gpudiag", appauthor=False)
    except RuntimeError:  # no home directory
        return None
    # Older versions of platformdirs return a relative XDG_CACHE_HOME, or "~" if there is no home directory.
    return directory if directory.is_absolute() else None


def _named_path(environment: Mapping[str, str], name: str) -> Path | None:
    named = environment.get(name, "")
    return Path(named).expanduser().absolute() if named else None


def machine_memory_bytes() -> int:
    """Return the memory of this machine, or of this process's container; 0 if unknown."""
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
