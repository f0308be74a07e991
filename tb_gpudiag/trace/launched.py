"""What the environment of a process says about its place in a job: as torchrun, Slurm and MPI set it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def distributed(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what Kineto calls `distributedInfo`; empty if it is not known."""
    rank, size = (_first_number(variables, names) for names in (RANK, WORLD_SIZE))
    return {} if rank is None or size is None else {"rank": rank, "world_size": size}


def _first_number(variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        if re.fullmatch(r"\d{1,6}", variables.get(name, "")):
            return int(variables[name])
    return None
