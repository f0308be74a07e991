"""How much of what a fix can save came back: fitted to jobs that were timed before and after their fix.

given_back.json has it by kind of job and kind of fix. `make fit` writes it (tests/truth/promised.py).
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels

JobKind = Literal["gpu", "cpu", "ranks"]
"""One process on a GPU, one on a CPU, and several ranks on CPUs."""

MOST_GIVEN: Final = 1 - levels.SLIGHT
"""Share of a step that comes back at most: something always stays."""

UNSEEN: Final = "other"
"""The kind of fix that was not measured."""


@dataclass(frozen=True)
class GivenBack:
    """What a fix gives, beside what can come back. Eight in ten lie between low and high. pairs: how many
    fixes of this kind were measured.

    Below 1, they are shares of what can come back. More comes out of what is left of the step, so factors
    above 1 are of the odds, saved to left: 50% of a step twice is 67%, and never all of it comes back.
    """

    low: float
    likely: float
    high: float
    pairs: int


AS_IT_IS: Final = GivenBack(1.0, 1.0, 1.0, 0)


def comes_back(share: float, factor: float) -> float:
    """Return what this factor makes of a share of the step."""
    share = min(share, MOST_GIVEN)
    return share * factor / (1 + share * max(0.0, factor - 1))


def given_back(job: JobKind, fix: str) -> GivenBack:
    """Return what fixes of this kind gave. fix: a rule's topic, or its family (rule.kind_of_fix)."""
    kinds = _table()[job]
    return kinds.get(fix, kinds[UNSEEN])


@cache
def _table() -> dict[str, dict[str, GivenBack]]:
    text = resources.files(__package__).joinpath("given_back.json").read_text(encoding="utf-8")
    jobs: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return {job: {fix: GivenBack(**one) for fix, one in kinds.items()} for job, kinds in jobs.items()}
