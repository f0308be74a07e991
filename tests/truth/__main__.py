"""Record real jobs, diagnose them, and print what was right.

`python -m tests.truth OUT [NAME…]` records below OUT; jobs with results there are only scored again. Without
names, all jobs are recorded, and the scores go into the page "How right it is".
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401
from tests.truth.page import figures, write
from tests.truth.record import Times, record_job
from tests.truth.score import SAME, Score, score


def main(out: str, *names: str) -> None:
    scores = []
    for job in [JOBS[name] for name in names] if names else JOBS.values():
        folder = Path(out) / job.name
        times = _times(job, folder)
        found = score(job, times, folder)
        scores.append(found)
        print(_line(found), flush=True)
    print("\n".join(f"{what}: {right}" for what, right in figures(scores).items()))
    if not names:
        write(scores)


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


if __name__ == "__main__":
    main(*sys.argv[1:])
