"""Memory: leaks of every cause, plateaus and healthy jobs at random settings, and which of them are found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.run import run_rules
from tests.benchmarks.truth.cases import LEAST_SEVERITY, MOST_SEVERITY, Case
from tests.simulator import Fault, Job, MemoryTruth, Simulated
from tests.simulator.heap import MIB
from tests.simulator.scenarios import FAULTS, HEALTHY, WELL

SLOPE_ERROR, RANK_1 = 0.02, 0.95
"""Aims: the relative error of a leak's slope, and the share of leaks whose site is listed first."""

NOISE = 5
"""A leak may be missed if it adds less, over the recording, than this multiple of the batches' spread."""

REPLACED_STEPS = 6
"""In fewer steps, a tensor that a larger one replaces may have the size of a batch: three sizes rise by
chance once in six times."""

LEAKING = tuple(fault for fault in FAULTS if fault.rule in ("GD401", "GD405"))

NAMED = {
    "kept_graph": "retained autograd graph",
    "retained_graph": "retained autograd graph",
    "hooks": "retained module outputs",
    "growing_cache": "growing cache",
    "gradients": "retained gradients",
    "metrics": "retained small tensors",
}
"""The simulator's cause -> its name in the finding's title. Other causes have no name."""

FROM_STACKS = ("hooks", "metrics")
"""Causes that only the modules' frames distinguish from others."""

# The loss keeps its graph, in the function that makes it.
KEEPER = "aten::sum"
KEEPERS = {"kept_graph": "evaluate", "retained_graph": "train_step"}


@dataclass
class MemoryScore:
    """One kind of job: how many cases, and how many of them were diagnosed right."""

    cases: int = 0
    found: int = 0
    worst_slope_error: float = 0.0  # of leaks where batches have one size
    noisy: int = 0  # leaks found where batches have many sizes
    inside: int = 0  # of those: the truth is in the confidence interval
    first_site: int = 0
    cause: int = 0
    alarms: int = 0
    wrong: list[str] = field(default_factory=list)


def memory_cases(settings: int, seed: int) -> Iterator[Case]:
    """Draw `settings` cases of each leak and of each kind of healthy job. The same arguments give the same
    cases."""
    for fault in LEAKING:
        for number in range(settings):
            draw = random.Random(f"{seed} memory {fault.name} {number}")
            severity = LEAST_SEVERITY * (MOST_SEVERITY / LEAST_SEVERITY) ** draw.random()
            noise = {"varying": 0.1} if number % 3 == 2 else {}
            job = fault.planted(severity, _job(draw, noise))
            if job.leak == "growing_cache":
                job = replace(job, steps=max(job.steps, REPLACED_STEPS))
            yield _case(fault.name, (fault,), job, draw)
    many_sizes = {"plateau": "cache", "varying": 0.6}
    for name, change in {"healthy": {}, **WELL, "cache_of_many_sizes": many_sizes}.items():
        for number in range(settings):
            draw = random.Random(f"{seed} memory {name} {number}")
            yield _case(name, (), _job(draw, change), draw)


def _job(draw: random.Random, change: dict[str, Any]) -> Job:
    job = replace(
        HEALTHY,
        steps=draw.randint(4, 12),
        blocks=draw.randint(3, 16),
        activation_bytes=round(draw.uniform(1, 12) * MIB),
        weights_bytes=round(draw.uniform(20, 400) * MIB),
        batch_bytes=round(draw.uniform(1, 16) * MIB),
        with_stacks=draw.random() < 0.8,
    )
    job = replace(job, **{key: value for key, value in change.items() if key != "steps"})
    if job.plateau == "cache":  # it fills up in the first half of the recording
        job = replace(job, steps=job.steps + 4)
        job = replace(job, plateau_steps=draw.randint(2, job.steps // 2 - 1))
    return replace(job, plateau_bytes=round(draw.uniform(1, 64) * MIB))


def _case(kind: str, planted: tuple[Fault, ...], job: Job, draw: random.Random) -> Case:
    return Case(kind, job, planted, draw.choice(("B+", "C1", "C2")), draw.randrange(2**31), 0.05)


def score_memory(cases: Iterable[Case]) -> dict[str, MemoryScore]:
    """Simulate and diagnose every case: kind of job -> score."""
    scores: dict[str, MemoryScore] = {}
    with TemporaryDirectory() as folder:
        for case in cases:
            run = case.simulate()
            score = scores.setdefault(case.kind, MemoryScore())
            score.cases += 1
            _add(score, case, run, case.facts(run, Path(folder)))
    return scores


def _add(score: MemoryScore, case: Case, run: Simulated, facts: Facts) -> None:
    """Count one diagnosed case."""
    found = {f.rule.id: f.finding for f in run_rules(facts, RULES).findings if f.rule.id.startswith("GD4")}
    where = f"{case.kind} (seed {case.seed}, {case.job.steps} steps)"
    for memory in run.truth.memory:
        finding = found.pop("GD405" if memory.device is None else "GD401", None)
        if memory.behaviour == "leak":
            _add_leak(score, case, memory, finding, facts, where)
        elif finding is not None:
            score.alarms += 1
            score.wrong.append(f"{where}: {finding.title}, but there is no leak")
    score.alarms += len(found)
    score.wrong += [f"{where}: {finding.title}" for finding in found.values()]


def _add_leak(
    score: MemoryScore, case: Case, memory: MemoryTruth, finding: Finding | None, facts: Facts, where: str
) -> None:
    job = case.job
    if finding is None:
        if memory.slope_bytes * (job.steps - 2) >= NOISE * job.varying * job.batch_bytes:
            score.wrong.append(f"{where}: {memory.cause} is not found")
        return
    score.found += 1
    _add_slope(score, memory, finding, facts, varying=bool(job.varying))
    if _is_first(finding, memory, job):
        score.first_site += 1
    else:
        score.wrong.append(f"{where}: {finding.places[:1]} is first, not {memory.frame}")
    if finding.title.partition(": ")[2] == _expected_name(memory, job):
        score.cause += 1
    else:
        score.wrong.append(f"{where}: {memory.cause} is called {finding.title}")


def _add_slope(
    score: MemoryScore, memory: MemoryTruth, finding: Finding, facts: Facts, *, varying: bool
) -> None:
    if not varying:
        error = abs(finding.cost_bytes_per_step / memory.slope_bytes - 1)
        score.worst_slope_error = max(score.worst_slope_error, error)
        return
    (trend,) = (m.trend for m in facts.memory if m.device == finding.memory_device)
    assert trend is not None
    score.noisy += 1
    score.inside += trend.low <= memory.slope_bytes <= trend.high


def _expected_name(memory: MemoryTruth, job: Job) -> str:
    if memory.cause in FROM_STACKS and not job.with_stacks:
        return ""
    return NAMED.get(memory.cause, "")


def _is_first(finding: Finding, memory: MemoryTruth, job: Job) -> bool:
    """Compare the operator and, where stacks were recorded and the thread has one, the line. What keeps a
    graph is as right as where its activations are made."""
    place = finding.places[0]
    if place.operator == KEEPER and place.function in {KEEPERS.get(memory.cause), ""}:
        return memory.cause in KEEPERS
    if place.operator not in memory.operators:
        return False
    if not (job.with_stacks and memory.frame):
        return True
    return memory.frame == f"{place.file}({place.line}): {place.function}"


def memory_table(scores: dict[str, MemoryScore]) -> Iterable[str]:
    total = Counter({name: sum(getattr(s, name) for s in scores.values()) for name in ("cases", "alarms")})
    yield f"{total['cases']} simulated jobs, with or without a leak. Aims: slope within {SLOPE_ERROR:.0%},"
    yield f"its site first in {RANK_1:.0%}, no alarm without a leak (alarms: {total['alarms']}). A third of"
    yield "the leaking jobs have batches of many sizes: the truth should be in the confidence interval."
    counts = f"{'in interval':>13}{'site first':>12}{'cause':>7}"
    yield f"{'job':24}{'cases':>7}{'found':>7}{'worst slope':>13}{counts}{'alarms':>8}"
    for kind, s in scores.items():
        slope = f"{s.worst_slope_error:.2%}" if s.found else "-"
        inside = f"{s.inside} of {s.noisy}" if s.noisy else "-"
        counts = f"{inside:>13}" + (f"{s.first_site:12}{s.cause:7}" if s.found else f"{'-':>12}{'-':>7}")
        yield f"{kind:24}{s.cases:7}{s.found:7}{slope:>13}{counts}{s.alarms:8}"
    for s in scores.values():
        yield from s.wrong
