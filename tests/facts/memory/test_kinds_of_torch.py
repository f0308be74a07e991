"""Kinds of memory when an allocation fails, byte for byte against the categories of torch's memory profiler.

The jobs are real ones. torch sees them run on the CPU, with every tensor and operator; we see what a snapshot
of the GPU's allocator shows, with Python frames only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations
from tb_gpudiag.trace.read import read_trace

torch = pytest.importorskip("torch")
from tests.truth.failing import everything  # noqa: E402, F401
from tests.truth.failing.job import FAILING  # noqa: E402
from tests.truth.gpu_snapshot import record, write_snapshot  # noqa: E402

pytestmark = pytest.mark.torch

LEAST_ALIKE = 0.97
MOST_UNKNOWN = 0.1

# What the engine allocates and no tensor of the user's is: a gradient on its way.
DETAIL = "autograd_detail"

NEAR_NS = 6_000
"""The trace has microseconds."""


@pytest.mark.parametrize(
    "name",
    [
        "batch_too_large",
        "longer_batch_in_a_later_step",
        "images_too_large",
        "state_of_adam",
        "updates_of_all_weights_at_once",
    ],
)
def test_kinds_are_those_of_torch(name: str, tmp_path: Path) -> None:
    job, trace, snapshot = FAILING[name], tmp_path / "job.pt.trace.json", tmp_path / "job.pickle"
    torch.manual_seed(0)
    profiler = record(job.job, trace)
    assert write_snapshot(trace, job.gpu, snapshot)
    (on_cpu,) = (memory for memory in Facts(read_trace(str(trace))).memory if memory.is_cpu)
    allocations = Facts(read_trace(str(snapshot))).memory[0].allocations
    alive = allocations.alive(int(allocations.failures[-1]))
    said = allocations.kind[alive]
    of_torch = _categories(profiler, on_cpu.allocations, alive.tolist())
    sizes = Counter[tuple[str, str]]()
    for i, kind, category in zip(alive.tolist(), said.tolist(), of_torch, strict=True):
        sizes[KINDS[kind].value, category] += int(allocations.bytes[i])
    whole = sum(sizes.values())
    known = {pair: size for pair, size in sizes.items() if pair[1] not in {"", DETAIL}}
    assert sum(size for (kind, _), size in sizes.items() if kind == "unknown") <= MOST_UNKNOWN * whole
    alike = sum(size for (kind, category), size in known.items() if kind == category)
    assert alike >= LEAST_ALIKE * sum(known.values()), sizes


def _categories(profiler: Any, allocations: Allocations, alive: list[int]) -> list[str]:
    """torch's category of each of these allocations when the last one was made; "" where it has none."""
    found = profiler._memory_profile()
    timeline = [one for one in found.timeline if hasattr(one[2][0], "storage")]
    made, changes = defaultdict[tuple[int, int], list[Any]](list), defaultdict[int, list[Any]](list)
    for time_ns, action, (key, version), size in timeline:
        if action.name == "CREATE":
            made[key.storage.ptr, size].append((time_ns, key))
        elif action.name == "INCREMENT_VERSION":
            changes[key.id].append((time_ns, version + 1))
    address = allocations.memory.address[allocations.event].tolist()
    places = list(zip(address, allocations.bytes.tolist(), strict=True))
    time_ns = allocations.time_ns.tolist()
    # torch's times are the clock's, and ours begin with the trace.
    apart = Counter(
        (at - time_ns[i]) // NEAR_NS for i in range(len(places)) for at, _ in made.get(places[i], [])
    )
    begin_ns = apart.most_common(1)[0][0] * NEAR_NS
    now_ns = time_ns[alive[-1]] + begin_ns + NEAR_NS
    keys = (_nearest(made.get(places[i], []), time_ns[i] + begin_ns) for i in alive)
    return [_category(found, key, changes, now_ns) for key in keys]


def _nearest(made: list[Any], time_ns: int) -> Any:
    """Return what was made then; None if nothing was."""
    near = ((abs(at - time_ns), key) for at, key in made)
    off, key = min(near, key=lambda one: one[0], default=(2 * NEAR_NS, None))
    return key if off < 2 * NEAR_NS else None


def _category(found: Any, key: Any, changes: dict[int, list[Any]], now_ns: int) -> str:
    if key is None:
        return ""
    version = max((after for at, after in changes[key.id] if at <= now_ns), default=0)
    known = found._categories.get(key, version)
    return known.name.lower() if known is not None else ""
