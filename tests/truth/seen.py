"""Tables of jobs that the rules have seen: the scores of all of them as Markdown, in seen_jobs/.

The page "How right it is" has only figures of inputs that nobody had tuned to: those of held_out.json.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from tests.truth.gpu.machine import machine
from tests.truth.score import SAME, Score, share

FOLDER: Final = Path(__file__).with_name("seen_jobs")

Values = Callable[[Sequence[Score]], Sequence[bool | None]]

FIGURES: Final[dict[str, Values]] = {
    "Healthy jobs without a finding above a hint": lambda some: [
        not found.alarms for found in some if found.job.healthy
    ],
    "Right limiter, in each recording": lambda some: [found.verdict for found in some],
    "Right first finding, in each recording": lambda some: [found.first for found in some],
    "Right function, where stacks were recorded": lambda some: [found.place for found in some],
    "Right rank": lambda some: [found.rank for found in some],
    "Promised range contains the real gain": lambda some: [found.promised for found in some],
    "Real gain within the plan: at least the first fix, at most all": lambda some: [
        found.planned for found in some
    ],
    "Finding gone after the fix": lambda some: [found.gone for found in some],
    "Equal code neither faster nor slower": lambda some: [
        verdict in SAME for found in some for verdict in found.equal
    ],
}


def figures(scores: Sequence[Score]) -> dict[str, str]:
    """`17 of 20` by what was right."""
    return {what: share(values(scores)) for what, values in FIGURES.items()}


def write(scores: Sequence[Score], left_out: Sequence[str], gpu: Path | None) -> None:
    """Write the table of the jobs. left_out: jobs without a score. gpu: the file that says where they were
    recorded, if not here."""
    if gpu:
        groups = {"one process, one GPU": list(scores)}
        put("gpu_jobs", "python -m tests.truth --gpu", _written(machine(gpu), groups, left_out))
        return
    here = f"torch {torch.__version__}, {_processor()}"
    groups = {
        "one process": [found for found in scores if found.job.world == 1],
        "ranks": [found for found in scores if found.job.world > 1],
    }
    put("jobs", "make truth", _written(here, groups, left_out))


def put(name: str, command: str, text: str) -> None:
    """Write the table `name` that this command has made."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.md").write_text(
        f"# Jobs that the rules have seen: {name}\n\n"
        f"Written by `{command}`. The rules were mended for these jobs, so the figures are no forecast.\n\n"
        f"{text.rstrip()}\n",
        encoding="utf-8",
    )


def _written(where: str, groups: Mapping[str, Sequence[Score]], left_out: Sequence[str]) -> str:
    scores = [found for group in groups.values() for found in group]
    rows = [
        f"| {what} | {' | '.join(share(values(group)) for group in groups.values())} |"
        for what, values in FIGURES.items()
    ]
    today = datetime.datetime.now(tz=datetime.timezone.utc)
    return "\n".join(
        [
            f"{today:%Y-%m-%d}, {where}.",
            "",
            f"| {len(scores)} jobs | {' | '.join(groups)} |",
            f"| --- {'| --- ' * len(groups)}|",
            *rows,
            "",
            "| job | what it does | ms per step | fixed | not right |",
            "| --- | --- | --- | --- | --- |",
            *(_row(found) for found in scores),
            "",
            *([f"Not run: {', '.join(left_out)}.", ""] if left_out else []),
        ]
    )


def _processor() -> str:
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{cpu[1] if cpu else platform.machine()} with {os.cpu_count()} cores"


def _row(found: Score) -> str:
    before, after = (1e3 * min(each) for each in (found.times.before, found.times.after))
    wrong = [
        name
        for name in ("verdict", "first", "place", "rank", "promised", "gone")
        if getattr(found, name) is False
    ]
    told = [f"equal code {verdict.lower()}" for verdict in found.equal if verdict not in SAME]
    said = ", ".join([*wrong, *(alarm.partition(": ")[2] for alarm in found.alarms), *dict.fromkeys(told)])
    cells = [found.job.name, found.job.mechanism, f"{before:.1f}", f"{after:.1f}", said]
    return f"| {' | '.join(cells)} |"
