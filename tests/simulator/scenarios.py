"""Scenarios: jobs with one planted fault each, named after it, and the same jobs with the fault fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tests.builder import Generation, Recording, TopLevel, to_bytes, write_file
from tests.simulator.heap import MIB
from tests.simulator.job import Job, Leak, Read
from tests.simulator.machine import Costs, Machine, Without
from tests.simulator.training import Training
from tests.simulator.truth import Truth, find_truth

HEALTHY = Job()
# A host that is slow to launch, and kernels long enough to hide it as long as nothing makes it wait.
SLOW_HOST = Job(kernel_us=60, small_us=40, dispatch_us=15, python_us=15)
# Many kernels too short to hide their launches. Launches are expensive, as on slow hosts, and operators
# cheap. Batches are small: no work would hide the copy of a large one.
SMALL = Job(
    blocks=60, kernel_us=2.5, small_us=2, launch_us=9, dispatch_us=2, python_us=1, batch_bytes=MIB // 8
)
# Little else to do than what each parameter costs the optimizer.
SHORT = Job(steps=4, blocks=6, batch_bytes=4 * MIB)


@dataclass(frozen=True)
class Scenario:
    """One job. rule: id of the rule that its fault must trigger, "" for none."""

    name: str
    job: Job
    rule: str = ""


@dataclass(frozen=True)
class Fault:
    """Something that a job does wrong.

    plant: severity (1 is usual, 0 next to nothing) -> fields of a Job that cause the fault.
    fix: fields that remove it.
    base: the job that it harms.
    """

    name: str
    rule: str  # "" if no rule is about it yet
    plant: Callable[[float], dict[str, Any]]
    fix: dict[str, Any]
    base: Job = HEALTHY

    def planted(self, severity: float, job: Job | None = None) -> Job:
        return replace(job or self.base, **self.plant(severity))

    def fixed(self, job: Job) -> Job:
        return replace(job, **self.fix)


def _read_by(how: Read) -> Callable[[float], dict[str, Any]]:
    return lambda s: {"checks": round(24 * s), "read_by": how}


WELL: dict[str, dict[str, Any]] = {
    "memory_warms_up": {"plateau": "warm_up", "steps": 7},
    "cache_fills": {"plateau": "cache", "plateau_steps": 3, "steps": 8},
    "optimizer_state": {"plateau": "optimizer_state", "steps": 7},
    "accumulated_gradients": {"accumulate": 2, "steps": 8},
    "varying_sizes": {"varying": 0.3, "steps": 8},
}
"""Healthy uses of memory that look like leaks for a while."""

LEAKS: tuple[tuple[str, Leak, int], ...] = (
    ("leak", "list", 8 * MIB),
    ("leak_kept_graph", "kept_graph", 24 * MIB),
    ("leak_retained_graph", "retained_graph", 48 * MIB),
    ("leak_hooks", "hooks", 48 * MIB),
    ("leak_growing_cache", "growing_cache", 4 * MIB),
    ("leak_gradients", "gradients", 64 * MIB),
    ("leak_metrics", "metrics", 33 * 512),  # three tensors of eleven of the allocator's blocks
)
"""Name, what retains memory, and bytes per step at the usual severity."""


def _leak(name: str, leak: Leak, size: int) -> Fault:
    return Fault(name, "GD401", lambda s: {"leak": leak, "leak_bytes": round(size * s)}, {"leak_bytes": 0})


FAULTS: tuple[Fault, ...] = (
    Fault("input_pipeline", "GD101", lambda s: {"workers": 0, "batch_us": 8_000 * s}, {"workers": 4}),
    Fault("slow_workers", "GD101", lambda s: {"workers": 2, "batch_us": 30_000 * s}, {"batch_us": 6_000}),
    Fault("host_bound", "GD102", lambda s: {"extra_python_us": 9_000 * s}, {"extra_python_us": 0}),
    Fault("slow_operator", "GD102", lambda s: {"slow_operator_us": 9_000 * s}, {"slow_operator_us": 0}),
    Fault("allocator_in_step", "GD103", lambda s: {"workspace": round(4 * s)}, {"workspace": 0}),
    Fault("cache_emptied", "GD103", lambda s: {"segments": round(10 * s)}, {"segments": 0}),
    Fault("pinned_buffers", "GD103", lambda s: {"pins": round(20 * s)}, {"pins": 0}),
    Fault("compilation_in_step", "GD104", lambda s: {"compile_us": 25_000 * s}, {"compile_us": 0}),
    Fault("lazy_loading", "GD104", lambda s: {"fresh_kernels": round(4 * s)}, {"fresh_kernels": 0}),
    Fault("module_loads", "GD104", lambda s: {"loads": round(4 * s)}, {"loads": 0}),
    Fault("queued", "GD105", lambda s: {"stall_us": 3_000 * s}, {"stall_us": 0}),
    Fault("launch_bound", "GD201", lambda s: {"blocks": round(60 * s) or 1}, {"graph": True}, SMALL),
    Fault(
        "single_tensor_optimizer",
        "GD202",
        lambda s: {"parameters": round(150 * s), "small_us": 2.5},
        {"parameters": 0},
        SHORT,
    ),
    Fault("host_sync", "GD301", lambda s: {"checks": round(24 * s)}, {"read_by": "unread"}, SLOW_HOST),
    Fault("copied_back", "GD301", _read_by("cpu"), {"read_by": "unread"}, SLOW_HOST),
    Fault("boolean_index", "GD301", _read_by("nonzero"), {"read_by": "where"}, SLOW_HOST),
    Fault("synchronize", "GD301", _read_by("synchronize"), {"read_by": "unread"}, SLOW_HOST),
    Fault(
        "pageable_copies",
        "GD302",
        lambda s: {"pinned": False, "batch_bytes": round(24 * MIB * s)},
        {"pinned": True},
    ),
    Fault("large_readback", "GD302", lambda s: {"dump_bytes": round(24 * MIB * s)}, {"dump_pinned": True}),
    Fault("round_trips", "GD303", lambda s: {"trips": round(2 * s)}, {"trips": 0}),
    Fault(
        "exposed_copies",
        "GD304",
        lambda s: {"batch_bytes": round(96 * MIB * s)},
        {"batch_bytes": 8 * MIB},
    ),
    Fault("fp32_matmul", "GD501", lambda s: {"fp32_blocks": round(6 * s)}, {"fp32_blocks": 0}),
    Fault("unaligned_matmul", "GD502", lambda s: {"odd_blocks": round(6 * s)}, {"odd_blocks": 0}),
    Fault("small_grids", "GD504", lambda s: {"narrow_blocks": round(6 * s)}, {"narrow_blocks": 0}),
    Fault("occupancy", "GD508", lambda s: {"tail_blocks": round(6 * s)}, {"even_waves": True}),
    Fault("unfused_attention", "GD503", lambda s: {"attention": round(6 * s)}, {"fused_attention": True}),
    Fault("data_movement", "GD506", lambda s: {"layouts": round(6 * s)}, {"layouts": 0}),
    Fault("exposed_communication", "GD601", lambda s: {"reduce_us": 2_000 * s}, {"reduce_us": 0}),
    Fault("garbage_collection", "GD102", lambda s: {"collect_us": 9_000 * s}, {"collect_us": 0}),
    Fault("uneven_steps", "GD106", lambda s: {"uneven_us": 12_000 * s, "steps": 9}, {"uneven_us": 0}),
    Fault("slower_steps", "GD106", lambda s: {"slower_by": 1 + 0.6 * s, "steps": 9}, {"slower_by": 1}),
    Fault("warmup_recorded", "GD902", lambda s: {"warmup_us": 80_000 * s}, {"warmup_us": 0}),
    *(_leak(name, leak, size) for name, leak, size in LEAKS),
    Fault("host_leak", "GD405", lambda s: {"host_leak_bytes": round(2 * MIB * s)}, {"host_leak_bytes": 0}),
    Fault(
        "little_room",
        "GD402",
        lambda s: {"activation_bytes": 25 * MIB, "capacity_bytes": round(548 * (1 + 0.04 / s) * MIB)},
        {"activation_bytes": 5 * MIB},
    ),
    Fault(
        "fragmented",
        "GD403",
        lambda s: {"spare": 1 + 1.2 * s, "capacity_bytes": 1_536 * MIB},
        {"spare": 1.05},
    ),
)


def one_per_rule() -> tuple[Fault, ...]:
    """The first fault of each rule: for tests that cost as much as a diagnosis."""
    return tuple({fault.rule: fault for fault in reversed(FAULTS)}.values())[::-1]


def scenarios(severity: float = 1.0) -> dict[str, Scenario]:
    """Return all scenarios by name; `<name>_fixed` is the same job with the fault fixed.

    severity: scales what is planted. 0 plants next to nothing, 2 twice as much.
    """
    found = {"healthy": Scenario("healthy", HEALTHY)}
    found["no_steps"] = Scenario("no_steps", replace(HEALTHY, with_steps=False), "GD901")
    for name, change in WELL.items():
        found[name] = Scenario(name, replace(HEALTHY, **change))
    for fault in FAULTS:
        job = fault.planted(severity)
        found[fault.name] = Scenario(fault.name, job, fault.rule)
        found[f"{fault.name}_fixed"] = Scenario(f"{fault.name}_fixed", fault.fixed(job))
    return found


def different_scenarios() -> list[str]:
    """Names of scenarios, without fixes that make the job of another one: 27 make the healthy job."""
    found: dict[Job, str] = {}
    for name, scenario in scenarios().items():
        job = scenario.job
        found.setdefault(job if job.leak_bytes else replace(job, leak="list"), name)
    return list(found.values())


@dataclass(frozen=True)
class Simulated:
    """A run of a scenario: its trace and the truth, which costs as much as the run: only if asked for."""

    scenario: Scenario
    recording: Recording
    find_truth: Callable[[], Truth]

    @cached_property
    def truth(self) -> Truth:
        return self.find_truth()

    def bytes(self, generation: Generation = "C2", *, gzipped: bool = False) -> bytes:
        """Return the trace file's bytes, marked as simulated."""
        return to_bytes(self.recording, generation, self._top(), gzipped=gzipped)

    def write(self, folder: Path, *, gzipped: bool = True) -> Path:
        """Write the trace into `folder`, named as the trace handler names it."""
        top = self._top()
        return write_file(self.recording, "C2", top, folder, worker="simulated_1", time=None, gzipped=gzipped)

    def _top(self) -> TopLevel:
        """A leak of the host is only sure with what NotingTensors notes: a tensor of each step comes and
        stays, in the recorded steps and in 20 before."""
        job = self.scenario.job
        kept = {str(job.host_leak_bytes): job.steps}
        history = [[step, job.host_leak_bytes * step] for step in (5, 10, 15, 20, 20 + job.steps)]
        notes = {"gpudiag_tensors": {"came": kept, "went": {}, "history": history}}
        return TopLevel(simulated=True, extra=notes if job.host_leak_bytes else {})


def simulate(
    scenario: str | Job,
    *,
    severity: float = 1.0,
    seed: int = 0,
    noise: float = 0.05,
    without: Without | None = None,
) -> Simulated:
    """Run a scenario by name, or any job. The same arguments give the same bytes.

    without: run the same job without some of the host's time: the true savings of a fix.

    Raises KeyError for a name that is not a scenario.
    """
    chosen = Scenario("job", scenario) if isinstance(scenario, Job) else scenarios(severity)[scenario]
    costs = Costs(launch=round(chosen.job.launch_us * 1_000))
    machine = Machine(
        seed=f"{seed} {chosen.name}",
        noise=noise,
        costs=costs,
        without=without,
        capacity_bytes=chosen.job.capacity_bytes,
    )
    training = Training(chosen.job, machine)
    training.run()
    run = Simulated(chosen, machine.recording, partial(find_truth, machine, training.steps, chosen.job))
    if not chosen.job.with_memory:
        assert run.truth  # reads what is removed now
        machine.recording.memory.clear()
    return run
