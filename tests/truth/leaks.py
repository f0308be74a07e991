"""Record loops that leak and loops that only look so, and score what is said about their memory.

`python -m tests.truth.leaks OUT [NAME…]` records below OUT; recordings that are there are only scored again.
Without names, all loops are recorded, and the scores go into the folder seen_jobs. It takes about
half an hour: all loops run in one process, one after the other.

Each is scored six times: recorded late in the job with NotingTensors, the same recording without what that
noted, and recorded as torch.profiler alone does, from before the loop makes its model on, and from its fourth
step on. These two have a process of their own, as a job has. The first of them also gives two snapshots of a
GPU, with a history from there on, and from the middle on.
"""

from __future__ import annotations

import datetime
import functools
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile

import tb_gpudiag
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.training.noting_tensors import KEY
from tests.truth.gpu_snapshot import Gpu, write_snapshot
from tests.truth.loops import everything  # noqa: F401
from tests.truth.loops.loop import LOOPS as LOOPS
from tests.truth.loops.loop import LeakLoop
from tests.truth.score import share
from tests.truth.seen import put

BEFORE, RECORDED = 20, 12
"""Steps before the recording, and in it."""

FIRST_STEPS = 32
"""Steps of the recordings that begin before the loop makes its model, and with its fourth step."""

HISTORY_FROM = 12
"""The step of these with which the history of a snapshot begins that has begun in the middle of the job."""

COLUMNS = (
    "with `NotingTensors`",
    "without",
    "without, from the job's start",
    "without, from the fourth step",
    "a GPU's snapshot, from the job's start",
    "from the middle",
)

IN_THREADS = frozenset(
    {"results_of_a_thread_pool", "workspaces_by_name_of_thread", "a_thread_saves_checkpoints"}
)
"""Loops with threads whose allocations or frees the CPU's profiler does not record: no snapshots are made of
them. Missed frees show as addresses that are allocated twice."""

Answer = Literal["found", "cannot tell", "nothing", "not recorded"]


@dataclass(frozen=True)
class LeakScore:
    """cause, place: whether they are right; None where there is no finding, or nothing to be right about."""

    loop: LeakLoop
    answer: Answer
    cause: bool | None
    place: bool | None
    said: str


def main(out: str, *names: str) -> None:
    found = []
    for loop in [LOOPS[name] for name in names] if names else LOOPS.values():
        found.append([_score(loop, to_dict(answer), rule) for rule, answer in _diagnosed(loop, Path(out))])
        print(_line(*found[-1]), flush=True)
    ways = list(zip(*found, strict=True))
    print("\n".join(f"{what}: {'; '.join(figures)}" for what, *figures in _figures(*ways)))
    if not names:
        put("leaks", "make leaks", _written(*ways))


def _diagnosed(loop: LeakLoop, out: Path) -> Iterator[tuple[str, Any]]:
    """Yield what is said of each of COLUMNS, after its rule. What is not there yet is recorded."""
    late = out / f"{loop.name}.pt.trace.json"
    if not late.exists():
        _record(loop, late)
    yield "GD405", tb_gpudiag.diagnose(str(late))
    yield "GD405", _without_notes(late)
    starts = {"from_start": {"wait": 0, "warmup": 0}, "early": {"wait": 1, "warmup": 2}}
    files = {end: out / f"{loop.name}.{end}.pt.trace.json" for end in starts}
    for end, file in files.items():
        if not file.exists():
            _in_own_process(loop, file, **starts[end])
        yield "GD405", tb_gpudiag.diagnose(str(file))
    for step in (None, HISTORY_FROM):
        yield "GD401", _as_snapshot(files["from_start"], step)


def _record(loop: LeakLoop, file: Path) -> None:
    """Record as the documentation says, with stacks and memory."""
    schedule = torch.profiler.schedule(wait=BEFORE, warmup=1, active=RECORDED)
    _recorded(loop, file, tb_gpudiag.NotingTensors(schedule), BEFORE + 1 + RECORDED)


def _record_plainly(name: str, file: Path, *, wait: int, warmup: int) -> None:
    schedule = torch.profiler.schedule(wait=wait, warmup=warmup, active=FIRST_STEPS, repeat=1)
    _recorded(LOOPS[name], file, schedule, wait + warmup + FIRST_STEPS)


def _in_own_process(loop: LeakLoop, file: Path, **before: int) -> None:
    """Record plainly, where autograd has made no graphs of other loops."""
    child = _ready_to_fork().Process(target=_record_plainly, args=(loop.name, file), kwargs=before)
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{loop.name} ended with {child.exitcode}")


@functools.cache
def _ready_to_fork() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(sorted({one.loop.__module__ for one in LOOPS.values()}))
    return context


def _recorded(loop: LeakLoop, file: Path, schedule: Any, count: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        _run(loop, profiler, count)


def _run(loop: LeakLoop, profiler: Any, count: int) -> None:
    torch.manual_seed(0)
    steps = loop.loop()
    for _ in range(count):
        next(steps)
        profiler.step()
    steps.close()  # type: ignore[attr-defined]


def _without_notes(file: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / file.name
        plain.write_text(file.read_text().replace(f'"{KEY}"', '"unknown"', 1))
        return tb_gpudiag.diagnose(str(plain))


def _as_snapshot(file: Path, from_step: int | None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        snapshot = Path(folder) / f"{file.stem}.pickle"
        write_snapshot(file, Gpu(80 << 30), snapshot, from_step=from_step)
        return tb_gpudiag.diagnose(str(snapshot))


def _score(loop: LeakLoop, diagnosis: dict[str, Any], rule: str) -> LeakScore:
    if rule == "GD401" and loop.name in IN_THREADS:
        return LeakScore(loop, "not recorded", None, None, "")
    found = next((one for one in diagnosis["findings"] if one["rule"] == rule), None)
    if found is None:
        unsure = next((one["reason"] for one in diagnosis["unchecked"] if one["rule"] == rule), "")
        return LeakScore(loop, "cannot tell" if unsure else "nothing", None, None, unsure)
    cause = found["title"].partition(": ")[2].partition(" and ")[0]
    first = str(found["places"][0]["function"]) if found.get("places") else ""
    return LeakScore(
        loop,
        "found",
        cause=cause in loop.cause if loop.cause else None,
        place=first.rpartition(".")[2] in loop.keeps if loop.keeps else None,
        said=f"{found['title']} ({first})",
    )


def _figures(*scores: Sequence[LeakScore]) -> list[tuple[str, ...]]:
    """Rows: what, then how many of each of the ways to score."""
    ways = [_figures_of_one([score for score in one if score.answer != "not recorded"]) for one in scores]
    return [(what, *(way[what] for way in ways)) for what in ways[0]]


def _figures_of_one(scores: Sequence[LeakScore]) -> dict[str, str]:
    truly = [score for score in scores if score.loop.keeps]
    rest = [score for score in scores if not score.loop.keeps]
    found = [score for score in truly if score.answer == "found"]
    alarms = [score for score in rest if score.answer == "found"]
    return {
        "Leaks that are found": share([score.answer == "found" for score in truly]),
        "Leaks of which it says that it cannot tell": share([s.answer == "cannot tell" for s in truly]),
        "Leaks that are missed": share([score.answer == "nothing" for score in truly]),
        "Findings that are leaks": share([True] * len(found) + [False] * len(alarms)),
        "Others of which it says that it cannot tell": share([s.answer == "cannot tell" for s in rest]),
        "Right cause of those found": share([score.cause for score in found]),
        "Right function of those found": share([score.place for score in found]),
    }


def _written(*ways: Sequence[LeakScore]) -> str:
    """ways: the same loops, scored in the ways of the table's columns."""
    today = datetime.datetime.now(tz=datetime.timezone.utc)
    columns, rule = " | ".join(COLUMNS), " | ".join(["---"] * len(COLUMNS))
    return "\n".join(
        [
            f"{today:%Y-%m-%d}, torch {torch.__version__}, {len(ways[0])} loops.",
            "",
            f"| what | {columns} |",
            f"| --- | {rule} |",
            *(f"| {' | '.join(row)} |" for row in _figures(*ways)),
            "",
            f"| loop | leaks | {columns} |",
            f"| --- | --- | {rule} |",
            *(
                f"| {scores[0].loop.about} | {_kind(scores[0])} | {' | '.join(map(_wrong, scores))} |"
                for scores in zip(*ways, strict=True)
            ),
            "",
        ]
    )


def _kind(score: LeakScore) -> str:
    return "yes" if score.loop.keeps else "no"


def _wrong(score: LeakScore) -> str:
    if score.answer in ("cannot tell", "not recorded"):
        return score.answer
    if not score.loop.keeps:
        return "alarm" if score.answer == "found" else ""
    if score.answer == "nothing":
        return "missed"
    return ", ".join(
        name for name, right in (("cause", score.cause), ("function", score.place)) if right is False
    )


def _line(*scores: LeakScore) -> str:
    kind = "leak" if scores[0].loop.keeps else "healthy"
    wrong = "; ".join(_wrong(score) or "right" for score in scores)
    return f"{kind} {scores[0].loop.name}: {wrong}; {scores[0].said}"


if __name__ == "__main__":
    main(*sys.argv[1:])
