"""Growth of small made-up jobs, for what few loops show: batches of changing sizes, caches that fill, leaks
in few steps. A fit sees them beside the real loops."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.builder import TraceBuilder
from tests.rules.memory_stage import MIB, STEP_US, build_model, job
from tests.truth.growth import growth_in, row

LENGTHS = (3, 4, 7, 12, 24)
SEEDS = 2
FEWEST_TOLD, BATCHES = 7, 12


def shapes() -> Iterator[dict[str, str]]:
    """Yield lines for the table of growth: each shape on a GPU and, from the job's start on, on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        for steps in LENGTHS:
            for seed in range(SEEDS):
                for name, leak, trace in _shapes(steps, random.Random(100 * steps + seed)):
                    found = growth_in(trace.write(Path(folder)))
                    if found is not None:
                        known = {
                            "loop": f"{name} {steps} {seed}",
                            "writer": f"made up {seed}",
                            "field": f"made up {seed}",
                            "mechanism": name,
                        }
                        yield row(found, way="made up", leak=int(leak), **known)


def _shapes(steps: int, rng: random.Random) -> Iterator[tuple[str, bool, TraceBuilder]]:
    size = rng.choice([16 << 10, MIB, 24 * MIB])
    every, full = rng.choice([2, 3]), rng.randint(2, max(2, steps // 2))
    keys = [rng.randrange(max(2, steps // 3)) for _ in range(steps)]
    kept = {
        "each step": [size] * steps,
        "some steps": [size * (step % every == 0) for step in range(steps)],
        "any size": [size * rng.randint(1, 9) for _ in range(steps)],
        "a cache that fills": [size * (step < full) for step in range(steps)],
        "a cache by key": [size * (step == keys.index(key)) for step, key in enumerate(keys)],
    }
    for name, sizes in kept.items():
        leak = not name.startswith("a cache")
        if name not in ("each step", "any size") and steps < FEWEST_TOLD:
            continue  # nothing in it tells which
        yield name, leak, job(sizes)
        started = job(sizes, device=None)
        build_model(started)
        yield name, leak, started
    for device in (None, 0) if steps >= FEWEST_TOLD else ():
        yield "a history that L-BFGS fills", False, _history(steps, size, device)
    for begins in (False, True):
        yield "a thread frees it", False, _freed_unseen(steps, size, begins=begins)
    for device in (None, *[0] * BATCHES):
        yield "batches of any size", False, _batches(steps, rng, 0, device)
        yield "a leak beside batches", True, _batches(steps, rng, 8 * MIB, device)


def _history(steps: int, size: int, device: int | None) -> TraceBuilder:
    """The optimizer keeps more in each step, up to a limit."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(steps):
        at = step * STEP_US
        main.step(step, at=at, us=STEP_US - 2)
        main.launch("gemm", at=at + 2, us=3, runs_at=at + 6, runs_us=80)
        main.frame("/opt/python3.11/site-packages/torch/optim/lbfgs.py(331): step", at=at + 10, us=80)
        main.op("aten::clone", at=at + 20, us=10)
        main.alloc(size, at=at + 22, device=device)
    return trace


def _freed_unseen(steps: int, size: int, *, begins: bool) -> TraceBuilder:
    """The profiler does not see the frees, but the address is allocated again."""
    trace = job([size] * steps, device=None)
    if begins:
        build_model(trace)
    own = [i for i, event in enumerate(trace.recording.memory) if event.bytes == size]
    for i in own[1:]:
        first = trace.recording.memory[own[0]]
        trace.recording.memory[i] = replace(trace.recording.memory[i], address=first.address)
    return trace


def _batches(steps: int, rng: random.Random, kept: int, device: int | None) -> TraceBuilder:
    """Each step has a batch of another size, which is there until the next one has come."""
    trace = job([kept] * steps, device=device)
    build_model(trace, device=device)
    main, before = trace.thread(), None
    for step in range(steps):
        main.op("aten::stack", at=step * STEP_US + 32, us=3)
        batch = main.alloc(rng.randint(1, 16) * MIB, at=step * STEP_US + 33, device=device)
        if before is not None:
            main.free(before, at=step * STEP_US + 36)
        before = batch
    return trace
