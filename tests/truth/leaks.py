"""Record loops that leak and loops that only look so, and score what is said about their memory.

`python -m tests.truth.leaks OUT [NAME…]` records below OUT; recordings that are there are only scored again.
Without names, all loops are recorded, and the scores go into the page "How right it is". It takes a few
minutes: all loops run in one process, one after the other.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import tb_gpudiag
from tb_gpudiag.report.wire import to_dict
from tests.truth import (  # noqa: F401
    bounded,
    kept_or_not,
    kept_or_not_too,
    leaking,
    leaking_too,
    not_leaking,
)
from tests.truth.leak_loop import LOOPS, LeakLoop
from tests.truth.page import put
from tests.truth.score import share

BEFORE, RECORDED = 20, 12
"""Steps before the recording, and in it."""


@dataclass(frozen=True)
class LeakScore:
    """None: it does not apply. doubted: a leak is said to be perhaps none, or the other way round."""

    loop: LeakLoop
    found: bool
    sure: bool
    cause: bool | None
    place: bool | None
    said: str


def main(out: str, *names: str) -> None:
    scores = []
    for loop in [LOOPS[name] for name in names] if names else LOOPS.values():
        file = Path(out) / f"{loop.name}.pt.trace.json"
        if not file.exists():
            _record(loop, file)
        scores.append(_score(loop, to_dict(tb_gpudiag.diagnose(str(file)))))
        print(_line(scores[-1]), flush=True)
    print("\n".join(f"{what}: {right}" for what, right in _figures(scores)))
    if not names:
        put("make leaks", _written(scores))


def _record(loop: LeakLoop, file: Path) -> None:
    """Record as the README says, with stacks and memory."""
    torch.manual_seed(0)
    file.parent.mkdir(parents=True, exist_ok=True)
    steps = loop.loop()
    for _ in range(BEFORE):
        next(steps)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=RECORDED),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        for _ in range(RECORDED + 1):
            next(steps)
            profiler.step()
    steps.close()  # type: ignore[attr-defined]


def _score(loop: LeakLoop, diagnosis: dict[str, Any]) -> LeakScore:
    found = next((one for one in diagnosis["findings"] if one["rule"] == "GD405"), None)
    if found is None:
        return LeakScore(loop, False, False, None, None, "")
    cause = found["title"].partition(": ")[2].partition(" and ")[0]
    first = str(found["places"][0]["function"]) if found.get("places") else ""
    return LeakScore(
        loop,
        found=True,
        sure=found.get("certain", True),
        cause=cause in loop.cause if loop.cause else None,
        place=first.rpartition(".")[2] in loop.keeps if loop.keeps else None,
        said=f"{found['title']} ({first})",
    )


def _figures(scores: Sequence[LeakScore]) -> list[tuple[str, str]]:
    truly = [score for score in scores if score.loop.keeps]
    rest = [score for score in scores if not score.loop.keeps]
    found = [score for score in truly if score.found]
    alarms = [score for score in rest if score.found]
    return [
        ("Leaks that are found", share([score.found for score in truly])),
        ("Findings that are leaks", share([True] * len(found) + [False] * len(alarms))),
        (
            "Findings without doubt that are leaks",
            share([True for score in found if score.sure] + [False for score in alarms if score.sure]),
        ),
        ("Leaks found without doubt", share([score.sure for score in found])),
        ("Right cause of those found", share([score.cause for score in found])),
        ("Right function of those found", share([score.place for score in found])),
    ]


def _written(scores: Sequence[LeakScore]) -> str:
    today = datetime.datetime.now(tz=datetime.timezone.utc)
    return "\n".join(
        [
            f"{today:%Y-%m-%d}, torch {torch.__version__}, {len(scores)} loops.",
            "",
            "| what | how many |",
            "| --- | --- |",
            *(f"| {what} | {right} |" for what, right in _figures(scores)),
            "",
            "| loop | leaks | not right |",
            "| --- | --- | --- |",
            *(
                f"| {s.loop.about} | {'yes' if s.loop.keeps else 'no'} | {', '.join(_wrong(s))} |"
                for s in scores
            ),
            "",
        ]
    )


def _wrong(score: LeakScore) -> list[str]:
    if not score.loop.keeps:
        return ["alarm" if score.sure else "alarm with doubt"] if score.found else []
    if not score.found:
        return ["not found"]
    return [name for name, right in (("cause", score.cause), ("function", score.place)) if right is False]


def _line(score: LeakScore) -> str:
    kind = "leak" if score.loop.keeps else "healthy"
    return f"{kind} {score.loop.name}: {', '.join(_wrong(score)) or 'right'}; {score.said}"


if __name__ == "__main__":
    main(*sys.argv[1:])
