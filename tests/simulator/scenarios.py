"""Scenarios: jobs with one planted fault each, named after it, and the same jobs with the fault mended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.builder import Recording, TopLevel, to_bytes, write_file
from tests.simulator.machine import MIB, Costs, Machine
from tests.simulator.training import Job, Training
from tests.simulator.truth import Truth, find_truth

HEALTHY = Job()
# A host that is slow to launch, and kernels long enough to hide it as long as nothing makes it wait.
SLOW_HOST = Job(kernel_us=60, small_us=40, dispatch_us=15, python_us=15)
# Many kernels too short to hide their launches; launches are dear, as on slow hosts, and operators cheap.
SMALL = Job(blocks=60, kernel_us=2.5, small_us=2, launch_us=9, dispatch_us=2, python_us=1)


@dataclass(frozen=True)
class Scenario:
    """`rule` is the id of the rule that the fault must trigger, "" for none."""

    name: str
    job: Job
    rule: str = ""


def scenarios(severity: float = 1.0) -> dict[str, Scenario]:
    """All of them by name; `<name>_fixed` is the same job with the fault mended.

    `severity` scales what is planted: 0 plants next to nothing, 2 twice as much.
    """
    pairs: list[tuple[str, str, Job, dict[str, Any]]] = [
        ("input_pipeline", "GD101", replace(HEALTHY, workers=0, batch_us=8_000 * severity), {"workers": 4}),
        ("host_bound", "GD102", replace(HEALTHY, extra_python_us=9_000 * severity), {"extra_python_us": 0}),
        ("allocator_in_step", "GD103", replace(HEALTHY, workspace=round(4 * severity)), {"workspace": 0}),
        ("compilation_in_step", "GD104", replace(HEALTHY, compile_us=25_000 * severity), {"compile_us": 0}),
        ("queued", "GD105", replace(HEALTHY, stall_us=3_000 * severity), {"stall_us": 0}),
        ("launch_bound", "GD201", replace(SMALL, blocks=round(60 * severity) or 1), {"graph": True}),
        ("host_sync", "GD301", replace(SLOW_HOST, checks=round(24 * severity)), {"checks": 0}),
        (
            "pageable_copies",
            "GD302",
            replace(HEALTHY, pinned=False, batch_bytes=round(24 * MIB * severity)),
            {"pinned": True},
        ),
        ("leak", "", replace(HEALTHY, leak_bytes=round(8 * MIB * severity)), {"leak_bytes": 0}),
    ]
    found = {"healthy": Scenario("healthy", HEALTHY)}
    found["no_steps"] = Scenario("no_steps", replace(HEALTHY, with_steps=False), "GD901")
    for name, rule, job, mended in pairs:
        found[name] = Scenario(name, job, rule)
        found[f"{name}_fixed"] = Scenario(f"{name}_fixed", replace(job, **mended))
    return found


@dataclass(frozen=True)
class Simulated:
    """A run of a scenario: what its trace says, and what is true."""

    scenario: Scenario
    recording: Recording
    truth: Truth

    def bytes(self, *, gzipped: bool = False) -> bytes:
        """The trace file's bytes, in the newest generation of the format, marked as simulated."""
        return to_bytes(self.recording, "C2", TopLevel(simulated=True), gzipped=gzipped)

    def write(self, folder: Path, *, gzipped: bool = True) -> Path:
        """Writes the trace into `folder`, named as the trace handler names it."""
        top = TopLevel(simulated=True)
        return write_file(self.recording, "C2", top, folder, worker="simulated_1", time=None, gzipped=gzipped)


def simulate(scenario: str | Job, *, severity: float = 1.0, seed: int = 0, noise: float = 0.05) -> Simulated:
    """Runs a scenario by name, or a job of one's own. The same arguments give the same bytes.

    Raises KeyError for a name that `scenarios` does not have.
    """
    chosen = Scenario("job", scenario) if isinstance(scenario, Job) else scenarios(severity)[scenario]
    costs = Costs(launch=round(chosen.job.launch_us * 1_000))
    machine = Machine(seed=f"{seed} {chosen.name}", noise=noise, costs=costs)
    training = Training(chosen.job, machine)
    training.run()
    return Simulated(chosen, machine.recording, find_truth(machine, training.steps))
