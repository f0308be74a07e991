"""Cases: simulated jobs at random settings, with one planted fault, two, or none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import GENERATIONS, Generation
from tests.simulator import FAULTS, Fault, Job, Simulated, simulate
from tests.simulator.scenarios import HEALTHY, SLOW_HOST, SMALL

LEAST_SEVERITY, MOST_SEVERITY = 0.2, 2.0

HEALTHY_KIND, MIXTURE_KIND, UNLINKED_KIND, PARTIAL_KIND = (
    "healthy",
    "two_faults",
    "unlinked_kernels",
    "partial_file",
)

OTHERS_TIME = ("GD106", "GD303", "GD304")
"""Rules about time that others leave over or also report: not mixed with those."""

# Jobs that look odd and are healthy: the queue is so deep that launch calls block on it, everything is one
# graph, the host is slow while kernels are long, the main process loads small batches, workers keep up. In
# the last three, what is not the job's steady state was recorded with it: a context that takes seconds, work
# from before the recording, a checkpoint after the last step.
HEALTHY_JOBS = (
    HEALTHY,
    replace(HEALTHY, blocks=300, kernel_us=60, steps=3),
    replace(SMALL, graph=True),
    SLOW_HOST,
    replace(HEALTHY, workers=0, batch_us=150),
    replace(HEALTHY, workers=2, batch_us=4_000),
    replace(HEALTHY, context_us=2_000_000),
    replace(HEALTHY, earlier_us=30_000),
    replace(HEALTHY, trailing_us=60_000),
)


@dataclass(frozen=True)
class Case:
    """One job at one setting.

    lost: share of its kernels and copies that have no launch in the trace.
    kept: share of its file's bytes that is left.
    """

    kind: str
    job: Job
    planted: tuple[Fault, ...]
    generation: Generation
    seed: int
    noise: float
    lost: float = 0.0
    kept: float = 1.0

    def simulate(self, job: Job | None = None) -> Simulated:
        return simulate(job or self.job, seed=self.seed, noise=self.noise)

    def facts(self, run: Simulated, folder: Path) -> Facts:
        """Write the run's file and read it back as the diagnosis does."""
        if self.lost:
            self._lose_launches(run)
        content = run.bytes(self.generation)
        path = folder / "simulated_1.1.pt.trace.json"
        path.write_bytes(content[: int(len(content) * self.kept)])
        return Facts(read_trace(str(path)))

    def _lose_launches(self, run: Simulated) -> None:
        draw = random.Random(self.seed)
        gpu = run.recording.gpu
        gpu[:] = [replace(span, correlation=None) if draw.random() < self.lost else span for span in gpu]


def cases(settings: int, seed: int) -> Iterator[Case]:
    """Draw `settings` cases of each kind. The same arguments give the same cases."""
    yield from _single_faults(settings, seed)
    yield from _mixtures(2 * settings, seed)
    for number in range(2 * settings):
        draw = random.Random(f"{seed} {HEALTHY_KIND} {number}")
        yield _case(HEALTHY_KIND, (), HEALTHY_JOBS[number % len(HEALTHY_JOBS)], number, draw)
    for number in range(settings):
        draw = random.Random(f"{seed} spoilt {number}")
        # The GPU idles before most of these small kernels, so lost launches leave idle time unexplained.
        unlinked = _case(UNLINKED_KIND, (), SMALL, number, draw)
        yield replace(unlinked, lost=draw.choice([0.003, 0.01, 0.03, 0.1, 0.4]))
        partial = _case(PARTIAL_KIND, (), HEALTHY, number, draw)
        yield replace(partial, kept=draw.uniform(0.6, 0.95))


def _single_faults(settings: int, seed: int) -> Iterator[Case]:
    for fault in FAULTS:
        for number in range(settings if fault.rule else 0):
            draw = random.Random(f"{seed} {fault.name} {number}")
            yield _case(fault.name, (fault,), fault.base, number, draw)


def _mixtures(count: int, seed: int) -> Iterator[Case]:
    """Draw cases with two faults of different rules."""
    mixable = [fault for fault in FAULTS if _is_mixable(fault)]
    for number in range(count):
        draw = random.Random(f"{seed} {MIXTURE_KIND} {number}")
        one = draw.choice(mixable)
        other = draw.choice([fault for fault in mixable if fault.rule != one.rule])
        base = SLOW_HOST if SLOW_HOST in (one.base, other.base) else HEALTHY
        yield _case(MIXTURE_KIND, (one, other), base, number, draw)


def _is_mixable(fault: Fault) -> bool:
    if fault.name == "single_tensor_optimizer":
        return True
    return fault.rule[:3] in ("GD1", "GD3") and fault.rule not in OTHERS_TIME


def _case(kind: str, planted: tuple[Fault, ...], base: Job, number: int, draw: random.Random) -> Case:
    job = replace(
        base,
        steps=draw.randint(min(4, base.steps), base.steps + 1),
        kernel_us=base.kernel_us * draw.uniform(0.8, 1.3),
        small_us=base.small_us * draw.uniform(0.8, 1.3),
        dispatch_us=base.dispatch_us * draw.uniform(0.7, 1.2),
        python_us=base.python_us * draw.uniform(0.7, 1.2),
        with_steps=draw.random() < 0.95,
        with_stacks=draw.random() < 0.8,
        with_memory=draw.random() < 0.5 or any(fault.rule.startswith("GD4") for fault in planted),
    )
    for fault in planted:
        severity = LEAST_SEVERITY * (MOST_SEVERITY / LEAST_SEVERITY) ** draw.random()
        job = fault.planted(severity, job)
    generation = GENERATIONS[number % len(GENERATIONS)]
    return Case(kind, job, planted, generation, draw.randrange(2**31), draw.uniform(0.01, 0.15))
