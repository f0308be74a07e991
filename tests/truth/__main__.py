"""Record real jobs, diagnose them, and print what was right.

`python -m tests.truth OUT [NAME…]` records below OUT; jobs with results there are only scored again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401
from tests.truth.record import Times, record_job
from tests.truth.score import SAME, Score, score, share


def main(out: str, *names: str) -> None:
    scores = []
    for job in [JOBS[name] for name in names] if names else JOBS.values():
        folder = Path(out) / job.name
        times = _times(job, folder)
        found = score(job, times, folder)
        scores.append(found)
        print(_line(found), flush=True)
    print(summary(scores))


def _times(job: Job, folder: Path) -> Times:
    kept = folder / "times.json"
    if not kept.exists():
        times = record_job(job, folder)
        kept.write_text(json.dumps(asdict(times)))
    return Times(**json.loads(kept.read_text()))


def _line(found: Score) -> str:
    before, after = (1e3 * min(each) for each in (found.times.before, found.times.after))
    marks = {
        "verdict": found.verdict,
        "first": found.first,
        "place": found.place,
        "rank": found.rank,
        "promised": found.promised,
        "gone": found.gone,
    }
    wrong = [name for name, right in marks.items() if right is False]
    told = [verdict for verdict in found.equal if verdict not in SAME]
    parts = [
        f"{found.job.name}: {before:.1f} -> {after:.1f} ms "
        f"({found.times.gain:.0%} ± {found.times.doubt:.0%})",
        *([f"wrong: {', '.join(wrong)}"] if wrong else []),
        *([f"false alarms: {', '.join(found.alarms)}"] if found.alarms else []),
        *([f"equal code is {', '.join(told)}"] if told else []),
        f"fixed: {found.changed}",
    ]
    details = [f"    {kind}: {said}" for kind, said in found.said.items()]
    return "\n".join(["; ".join(parts), *details])


def summary(scores: list[Score]) -> str:
    """The table's figures."""
    quiet = [not found.alarms for found in scores if found.job.healthy]
    equal = [verdict in SAME for found in scores for verdict in found.equal]
    figures: dict[str, Sequence[bool | None]] = {
        "healthy without a finding": quiet,
        "verdict": [found.verdict for found in scores],
        "first finding": [found.first for found in scores],
        "place": [found.place for found in scores],
        "rank": [found.rank for found in scores],
        "promised range holds the gain": [found.promised for found in scores],
        "gone after the fix": [found.gone for found in scores],
        "equal code is not told apart": equal,
    }
    return "\n".join(f"{what}: {share(values)}" for what, values in figures.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
