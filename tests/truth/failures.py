"""Record jobs that run out of memory, and score the advice: `python -m tests.truth.failures OUT [NAME...]`.

Recordings that are there are only scored again. Without names, the scores go into the folder seen_jobs.
With `--gpu`, the failures are those that `python -m tests.truth.gpu` recorded on a GPU; they are only scored.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tb_gpudiag
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.rules.rule import fix_code
from tests.truth.failing import everything  # noqa: F401
from tests.truth.failing.job import FAILING, FailingJob
from tests.truth.gpu import failing as on_gpu
from tests.truth.gpu.failing import FailingOnGpu
from tests.truth.gpu_snapshot import record, write_snapshot
from tests.truth.score import share
from tests.truth.seen import put

RULES = ("memory_peak", "memory_fragmentation", "memory_leak")
CODE = {name: code for rule in RULES for name, code in fix_code(f"tb_gpudiag.rules.memory.{rule}").items()}


@dataclass(frozen=True)
class FailureScore:
    """advice: names of its code blocks, in order."""

    job: FailingJob | FailingOnGpu
    advice: list[str]

    @property
    def right(self) -> bool:
        return self.advice[:1] != [] and self.advice[0] in self.job.helps and not self.misleads

    @property
    def misleads(self) -> bool:
        return bool(self.job.never & set(self.advice))


def main(out: str, *names: str, gpu: bool) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    scores = []
    jobs: dict[str, FailingJob | FailingOnGpu] = {**(on_gpu.FAILING if gpu else FAILING)}
    for job in [jobs[name] for name in names or jobs]:
        snapshot = recorded(job, folder)
        if snapshot is None:
            print(f"{job.name} was not recorded, or does not run out of memory here", flush=True)
            continue
        scores.append(score_of(job, snapshot))
        outcome = "right" if scores[-1].right else "WRONG"
        print(f"{outcome} {job.name}: {', '.join(scores[-1].advice)}", flush=True)
    print(share([score.right for score in scores]))
    if not names:
        name, command = ("gpu_failures", "python -m tests.truth.failures --gpu") if gpu else _ON_CPU
        put(name, command, _written(scores))


_ON_CPU = "failures", "make failures"


def recorded(job: FailingJob | FailingOnGpu, folder: Path) -> Path | None:
    """Return the snapshot of a job that failed; None if it did not, as some processors need fewer buffers for
    a convolution than others."""
    if isinstance(job, FailingOnGpu):
        dumped = folder / job.name / "failed.pickle"
        return dumped if dumped.exists() else None
    trace, snapshot = folder / f"{job.name}.pt.trace.json", folder / f"{job.name}.pickle"
    if not trace.exists():
        torch.manual_seed(0)
        record(job.job, trace)
    return snapshot if write_snapshot(trace, job.gpu, snapshot) else None


def score_of(job: FailingJob | FailingOnGpu, snapshot: Path) -> FailureScore:
    diagnosis = to_dict(tb_gpudiag.diagnose(str(snapshot)))
    found: dict[str, Any] | None = next((f for f in diagnosis["findings"] if f["rule"] == "GD402"), None)
    code = found["fix"]["code"] if found else ""
    named = [name for name, block in CODE.items() if block in code]
    return FailureScore(job, sorted(named, key=lambda name: code.index(CODE[name])))


def _written(scores: Sequence[FailureScore]) -> str:
    today = datetime.datetime.now(tz=datetime.timezone.utc)
    return "\n".join(
        [
            f"{today:%Y-%m-%d}, torch {torch.__version__}: the first advice helps, and none misleads, in "
            f"{share([score.right for score in scores])} jobs.",
            "",
            "| job | advice | right |",
            "| --- | --- | --- |",
            *(
                f"| {score.job.about} | {', '.join(score.advice)} | {'yes' if score.right else 'no'} |"
                for score in scores
            ),
            "",
        ]
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*(each for each in arguments if each != "--gpu"), gpu="--gpu" in arguments)
