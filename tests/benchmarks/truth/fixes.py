"""Estimated savings of fixes, compared with the same job simulated without the time that a fix removes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.facts.core.intervals import EMPTY
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.trace.read import read_trace
from tests.simulator import FAULTS, Fault, Without, simulate

TOLERANCE = 0.05
"""Share of the true step time by which the replayed one may be off."""

# What each rule's replay removes, as the simulator's options. It is not the whole fix: a CUDA graph or a
# changed `if` would change the GPU's work, too.
TAKEN_AWAY = {
    "GD101": Without(frozenset({"input"})),
    "GD102": Without(frozenset({"python"}), slow_operators=True),
    "GD103": Without(frozenset({"allocator"})),
    "GD104": Without(frozenset({"compile"})),
    "GD201": Without(frozenset({"dispatch", "launch"})),
    "GD202": Without(loops=True),
    "GD301": Without(waits=True),
}
REPLAYED = tuple(fault for fault in FAULTS if fault.rule in TAKEN_AWAY)


@dataclass(frozen=True)
class FixedStep:
    """ns per step: as recorded, as the replay predicts it, and as it is in the simulator."""

    fault: Fault
    severity: float
    before_ns: float
    predicted_ns: float
    true_ns: float

    @property
    def error(self) -> float:
        return self.predicted_ns / self.true_ns - 1


def fixed_steps(fault: Fault, settings: int, seed: int) -> Iterator[FixedStep]:
    """Compare the fix at random settings, those without a finding excepted."""
    for number in range(settings):
        draw = random.Random(f"{seed} fix {fault.name} {number}")
        found = fixed_step(fault, draw.uniform(0.5, 2), draw.randrange(2**31), draw.uniform(0.01, 0.1))
        if found is not None:
            yield found


def _asked(rule_id: str, facts: Facts) -> list[Finding]:
    answer = next(rule for rule in RULES if rule.id == rule_id).check(facts, {})
    found = answer if isinstance(answer, list) else [answer]
    return [each for each in found if isinstance(each, Finding)]


def fixed_step(fault: Fault, severity: float, seed: int, noise: float) -> FixedStep | None:
    """Compare the fix at one setting; None where no finding can be replayed."""
    job = fault.planted(severity)
    faulty = simulate(job, seed=seed, noise=noise)
    free = simulate(job, seed=seed, noise=noise, without=TAKEN_AWAY[fault.rule])
    with TemporaryDirectory() as folder:
        facts = Facts(read_trace(str(faulty.write(Path(folder), gzipped=False))))
    # The rule alone: a host that the recorder may slow promises nothing, and the simulator has no recorder.
    for found in _asked(fault.rule, facts):
        if found.removable is not None:
            most = found.removable.most
            # Of synchronizations, the simulator takes away the waits alone; of no fix, GPU work.
            host = EMPTY if fault.rule == "GD301" else most.host
            after = facts.replay.run(replace(most, host=host, dropped=())).window_ns
            windows = (faulty.truth.window_ns, after, free.truth.window_ns)
            before, predicted, true = (ns / job.steps for ns in windows)
            return FixedStep(fault, severity, before, predicted, true)
    return None
