"""Recordings of the host's memory with what NotingTensors wrote into them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.training.noting_tensors import KEY
from tests.rules.memory_stage import MIB, job
from tests.rules.stage import facts_of


def noted(
    came: dict[int, int], went: dict[int, int], *, steps: int = 20, recorded: int = 0
) -> dict[str, Any]:
    """What NotingTensors writes. What came and did not go did so evenly since the job began."""

    def of(sizes: dict[int, int]) -> dict[str, int]:
        return {str(size): count for size, count in sizes.items()}

    def total(sizes: dict[int, int]) -> int:
        return sum(size * count for size, count in sizes.items())

    return {
        "came": of(came),
        "went": of(went),
        "history": [
            [at, at * (total(came) - total(went)) // (recorded or max(came.values()))]
            for at in (steps // 4, steps // 2, 3 * steps // 4, steps)
        ],
    }


def check_noted(kept: Sequence[int], written: object, folder: Path) -> RuleAnswer:
    return RULE.check(facts_of(job(kept, device=None, top_level={KEY: written}), folder))


def held_by(*functions: Sequence[str], **limit: object) -> list[dict[str, Any]]:
    return [{"bytes": MIB, "functions": list(functions), **limit}]
