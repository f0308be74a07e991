"""Record real jobs, diagnose them, and print what was right.

With `--gpu`, the jobs are those that `python -m tests.truth.gpu OUT` recorded on a machine with a GPU;
they are only scored.

`python -m tests.truth OUT [NAME…]` records below OUT; jobs with results there are only scored again, so a run
that was interrupted goes on where it was. Without names, all jobs are recorded, and the scores go into
seen_jobs/, with the names of jobs that failed to run, or that the time was too short for.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.truth.gpu import everything as everything_on_gpu  # noqa: F401
from tests.truth.gpu.packing import MACHINE
from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401
from tests.truth.record import read_times, record_job
from tests.truth.score import SAME, Score, score
from tests.truth.seen import figures, write
from tests.truth.times import Times

ENOUGH_S = 24 * 60
"""No job of all begins later than this: `make truth` ends within 25 minutes, or says what it left out."""


def main(out: str, names: Sequence[str], *, gpu: bool) -> None:
    scores: list[Score] = []
    left_out: list[str] = []
    began = time.monotonic()
    for job in _chosen(names, gpu):
        if not names and time.monotonic() - began > ENOUGH_S:
            left_out.append(job.name)
            continue
        folder = Path(out) / job.name
        try:
            found = score(job, _times(job, folder), folder)
        except Exception:  # one job that does not run here must not cost the others' results
            traceback.print_exc()
            left_out.append(job.name)
            continue
        scores.append(found)
        print(_line(found), flush=True)
    print("\n".join(f"{what}: {right}" for what, right in figures(scores).items()))
    if left_out:
        print(f"not run: {', '.join(left_out)}")
    if not names:
        write(scores, left_out, Path(out) / MACHINE if gpu else None)


def _chosen(names: Sequence[str], gpu: bool) -> list[Job]:
    if names:
        return [JOBS[name] for name in names]
    return [job for job in JOBS.values() if job.gpu == gpu]


def _times(job: Job, folder: Path) -> Times:
    kept = folder / "times.json"
    if not kept.exists():
        if job.gpu:
            raise FileNotFoundError(f"{job.name} was not recorded on a GPU: {kept}")
        record_job(job, folder)
        kept.write_text(json.dumps(asdict(read_times(folder))))
    return Times(**json.loads(kept.read_text())) if job.gpu else read_times(folder)


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("names", nargs="*", choices=[*JOBS, []], metavar="NAME")
    parser.add_argument("--gpu", action="store_true", help="jobs that a GPU recorded: only score them")
    given = parser.parse_args()
    main(given.out, given.names, gpu=given.gpu)
