"""Traps: jobs that invite one wrong statement each, drawn from how real jobs behave."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding, Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.wording.quantity import Quantity
from tests.benchmarks.truth.cases import Case
from tests.benchmarks.truth.labels import MUST, MUST_NOT, costs_ns
from tests.benchmarks.truth.score import SAVING_TOLERANCE
from tests.builder import GENERATIONS
from tests.simulator import Job, Simulated
from tests.simulator.job import Side
from tests.simulator.scenarios import HEALTHY, SLOW_HOST

SHARE_TOLERANCE = 0.05
"""Of the step window: host time moves between causes if the recording makes the host later."""

# Measured with torch 2.13 on a CPU: recording a frame takes 0.2 to 0.7 µs, an operator about as long.
RECORDER_NS = (200, 700)

# Two public pairs of a job without workers and with four: its other host work took 8% and 19% longer, and to
# receive a batch took 0.1 to 1.9 ms.
CONTENTION = (0.05, 0.2)
HAND_OVER_US = (100, 1_900)

HOST_RULES = ("GD101", "GD102", "GD201", "GD202")
KERNEL_RULES = ("GD5",)

PLAIN_COMPILE = re.compile(r"torch\.compile\(\w+\)|@torch\.compile|\bcompile it\b")
"""Advice to compile, without saying how to compile better."""


@dataclass(frozen=True)
class Trap:
    """One kind of job. mistakes: what is wrong about the findings of a run of it."""

    name: str
    draw: Callable[[random.Random], Job]
    mistakes: Callable[[Case, Simulated, list[RuleFinding]], Iterator[str]]


def _recorded_python(draw: random.Random) -> Job:
    """Thousands of frames per step. In every other job, some of the host's time is real."""
    return replace(
        SLOW_HOST,
        steps=4,
        helper_calls=draw.randrange(20, 400),
        extra_python_us=draw.choice([0, draw.uniform(1_000, 10_000)]),
        recorder_ns=draw.uniform(*RECORDER_NS),
    )


def _recorded_transforms(draw: random.Random) -> Job:
    return replace(
        HEALTHY,
        steps=4,
        workers=0,
        batch_us=draw.uniform(200, 6_000),
        item_calls=draw.randrange(50, 2_000),
        recorder_ns=draw.uniform(*RECORDER_NS),
    )


def _inflated(case: Case, run: Simulated, found: list[RuleFinding]) -> Iterator[str]:
    """Compare each finding about the host with the same job recorded at no cost."""
    quiet = case.simulate(replace(case.job, recorder_ns=0))
    costs = costs_ns(quiet.truth)
    for one in found:
        if one.rule.id not in HOST_RULES:
            continue
        true = costs[one.rule.id] / quiet.truth.window_ns
        limit = one.rule.error_share
        if one.severity == Severity.ERROR and limit is not None and true < MUST_NOT * limit:
            yield f"{one.rule.id} is an ERROR, but without the recording its share is {true:.1%}"
        low, high = _shares(one.finding, run.truth.window_ns)
        if not low - SHARE_TOLERANCE <= true <= high + SHARE_TOLERANCE:
            yield f"{one.rule.id} is {low:.1%} to {high:.1%}, but without the recording {true:.1%}"
    for rule in HOST_RULES:
        if costs[rule] >= MUST * 0.05 * quiet.truth.window_ns and rule not in {f.rule.id for f in found}:
            yield f"{rule} is not found"


def _shares(finding: Finding, window_ns: int) -> tuple[float, float]:
    """The finding's share of the step window, corrected as its evidence says."""
    for evidence in finding.evidence:
        if evidence.label == "Recording overhead, estimated":
            least, most = evidence.value, evidence.details[0]
            assert isinstance(least, Quantity)
            assert isinstance(most, Quantity)
            low, high = ((finding.cost_ns - ns.value) / (window_ns - ns.value) for ns in (most, least))
            return low, high
    return finding.cost_ns / window_ns, finding.cost_ns / window_ns


def _compiled(draw: random.Random) -> Job:
    """Kernels of any length, with up to six graph breaks."""
    long = draw.choice([1.0, 3.0, 10.0, 30.0])
    return replace(
        HEALTHY,
        blocks=draw.randrange(12, 40),
        kernel_us=4 * long * draw.uniform(0.8, 1.3),
        small_us=3 * long * draw.uniform(0.8, 1.3),
        compiled=draw.randrange(1, 7),
        with_memory=False,
    )


def _advised_to_compile(case: Case, run: Simulated, found: list[RuleFinding]) -> Iterator[str]:
    for one in found:
        said = PLAIN_COMPILE.search(f"{one.finding.fix.text}\n{one.finding.fix.code}")
        if said:
            yield f"{one.rule.id} says {said[0]!r} about compiled code"
    idle = 1 - run.truth.busy_ns / run.truth.window_ns
    if idle > 0.3 and not (found and found[0].rule.id in ("GD102", "GD201", "GD202")):
        yield f"idle {idle:.0%}, but the first finding is {found[0].rule.id if found else 'nothing'}"


def _two_streams(draw: random.Random) -> Job:
    """Up to the length of the step, and beyond: then the rest is not hidden."""
    kinds: tuple[Side, ...] = ("narrow", "low_occupancy", "layout")
    return replace(HEALTHY, side=draw.choice(kinds), side_us=draw.uniform(500, 9_000), with_memory=False)


def _hidden(case: Case, run: Simulated, found: list[RuleFinding]) -> Iterator[str]:
    """Compare what findings about kernels promise with the same job without the side stream."""
    without = case.simulate(replace(case.job, side_us=0)).truth.window_ns
    gain_ns = max(0, run.truth.window_ns - without)
    for one in found:
        if one.rule.id.startswith(KERNEL_RULES) and one.finding.saving is not None:
            most_ns = one.finding.saving.high_ns
            if most_ns > gain_ns + 2 * SAVING_TOLERANCE * run.truth.window_ns:
                yield f"{one.rule.id} promises {most_ns / 1e6:.1f} ms, but {gain_ns / 1e6:.1f} are to be had"


def _busy_cores(draw: random.Random) -> Job:
    return replace(
        draw.choice([HEALTHY, SLOW_HOST]),
        workers=0,
        batch_us=draw.uniform(2_000, 12_000),
        contention=draw.uniform(*CONTENTION),
        hand_over_us=draw.uniform(*HAND_OVER_US),
    )


def _promised(case: Case, run: Simulated, found: list[RuleFinding]) -> Iterator[str]:
    """Compare the savings of four workers with the same job run with them."""
    window_ns = run.truth.window_ns
    gain_ns = window_ns - case.simulate(replace(case.job, workers=4)).truth.window_ns
    saving = next((f.finding.saving for f in found if f.rule.id == "GD101"), None)
    if saving is None:
        if gain_ns >= MUST * 0.05 * window_ns:
            yield "GD101 is not found"
        return
    tolerance_ns = SAVING_TOLERANCE * window_ns
    if not saving.low_ns - tolerance_ns <= gain_ns <= saving.high_ns + tolerance_ns:
        low, high, gain = (round(ns / 1e6, 2) for ns in (saving.low_ns, saving.high_ns, gain_ns))
        yield f"GD101 promises {low} to {high} ms ({saving.basis}), but {gain} are to be had"


TRAPS = (
    Trap("recorded_python", _recorded_python, _inflated),
    Trap("recorded_transforms", _recorded_transforms, _inflated),
    Trap("compiled", _compiled, _advised_to_compile),
    Trap("two_streams", _two_streams, _hidden),
    Trap("busy_cores", _busy_cores, _promised),
)


@dataclass
class TrapScore:
    """How many jobs of one kind were diagnosed without a mistake."""

    cases: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)


def score_traps(settings: int, seed: int, traps: Iterable[Trap] = TRAPS) -> dict[str, TrapScore]:
    """Simulate and diagnose `settings` jobs of each kind: name -> score. The same arguments give the same
    jobs."""
    scores: dict[str, TrapScore] = {}
    with TemporaryDirectory() as folder:
        for trap in traps:
            score = scores.setdefault(trap.name, TrapScore())
            for number in range(settings):
                case = _case(trap, random.Random(f"{seed} {trap.name} {number}"))
                run = case.simulate()
                found = run_rules(case.facts(run, Path(folder)), RULES).findings
                mistakes = list(trap.mistakes(case, run, found))
                score.cases += 1
                score.right += not mistakes
                score.wrong += [
                    f"{trap.name} (seed {case.seed}, {case.generation}): {one}" for one in mistakes
                ]
    return scores


def _case(trap: Trap, draw: random.Random) -> Case:
    generations = [generation for generation in GENERATIONS if generation != "A"]  # it has no frames
    job = trap.draw(draw)
    return Case(trap.name, job, (), draw.choice(generations), draw.randrange(2**31), draw.uniform(0.01, 0.1))


def trap_table(scores: dict[str, TrapScore]) -> Iterable[str]:
    yield "jobs that invite a wrong statement: recording that makes the host slow, compiled code, kernels"
    yield "hidden under another stream's, workers that cost the main thread's cores (aim: no mistake)"
    yield f"{'job':24}{'cases':>7}{'right':>7}"
    for name, score in scores.items():
        yield f"{name:24}{score.cases:7}{score.right:7}"
    for score in scores.values():
        yield from score.wrong
