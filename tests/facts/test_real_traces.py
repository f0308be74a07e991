"""Facts on real traces: invariants on every one, and known figures of some, computed a second way."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tests.facts.invariants import assert_invariants
from tests.real_traces import FILES, first_in, real_facts

pytestmark = pytest.mark.real

GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


def device_of(facts: Facts) -> DeviceFacts:
    assert facts.device is not None
    return facts.device


@pytest.mark.parametrize("file", FILES)
def test_invariants_on_every_real_trace(shared_traces: Path, file: str) -> None:
    try:
        facts = real_facts(file)
    except TraceError as error:
        pytest.fail(f"{file} could not be read: {error}")
    assert_invariants(facts)


def swept_idle(path: Path, device: int) -> tuple[int, int]:
    """Compute (span ns, idle ns) of a device with json and Decimal, one event after another."""
    raw = gzip.decompress(path.read_bytes())
    loaded: Any = json.loads(raw, parse_float=Decimal, strict=False)
    events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
    spans = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in GPU_WORK:
            continue
        if int(event.get("args", {}).get("device", event["pid"])) == device:
            start, length = int(Decimal(event["ts"]) * 1000), int(Decimal(event["dur"]) * 1000)
            spans.append((start, start + max(0, length)))
    spans.sort()
    first, reached, idle = spans[0][0], spans[0][1], 0
    for start, end in spans:
        idle += max(0, start - reached)
        reached = max(reached, end)
    return reached - first, idle


@pytest.mark.parametrize(
    ("folder", "device", "percent"),
    [
        ("h100_owlv2", 0, 47.44),
        ("h100_timesformer", 0, 0.97),
        ("h100_bert_small", 0, 92.08),
        ("b200_vllm_eager", 0, 86.27),
        ("v100_resnet50_workers0", 0, 39.43),
        ("v100_resnet50_workers4", 0, 23.35),
        ("v100_ddp_resnet_healthy", 0, 1.58),
        ("v100_ddp_memory", 1, 42.26),
        ("rtx5080_without_cuda_graph", 0, 65.59),
        ("rtx5080_with_cuda_graph", 0, 1.88),
        ("mi300_resnet_checkpoint", 2, 2.96),
        ("a100_recsys_queued", 0, 64.40),
    ],
)
def test_idle_share_of_the_gpu_span(shared_traces: Path, folder: str, device: int, percent: float) -> None:
    found = device_of(first_in(folder))
    assert found.id == device
    idle = found.ledger.idle_ns(found.span)
    assert round(100 * idle / found.span.duration_ns, 2) == percent
    assert (found.span.duration_ns, idle) == swept_idle(
        next((shared_traces / folder).rglob("*.json*")), device
    )


@pytest.mark.parametrize(
    ("folder", "percent"),
    [("h100_owlv2", 96.0), ("v100_resnet50_workers0", 72.0), ("v100_resnet50_workers4", 1.5)],
)
def test_share_of_data_loading_in_the_idle_time(shared_traces: Path, folder: str, percent: float) -> None:
    device = device_of(first_in(folder))
    by_cause = device.ledger.by_cause(device.span)
    assert 100 * by_cause[Cause.INPUT] / sum(by_cause.values()) == pytest.approx(percent, abs=1.0)


def test_queued_work_is_not_attributed_to_the_host(shared_traces: Path) -> None:
    device = device_of(first_in("a100_recsys_queued"))
    by_cause = device.ledger.by_cause(device.span)
    assert by_cause[Cause.QUEUED] + by_cause[Cause.UNLINKED] > 0.9 * sum(by_cause.values())


def test_a_long_stretch_before_the_first_kernel_is_found_in_the_step_window(shared_traces: Path) -> None:
    facts = first_in("h100_timesformer")
    device = device_of(facts)
    in_window = device.ledger.by_cause(device.window)[Cause.PYTHON]
    assert in_window > 200_000_000 > 100 * device.ledger.by_cause(device.span)[Cause.PYTHON]
    ledger, places = device.ledger, facts.host.place
    time_in: dict[str, int] = {}
    for event, length in zip(ledger.event, ledger.inside(device.window), strict=True):
        frame = facts.host.frame(int(places[event])) if event >= 0 else None
        if frame:
            time_in[frame.function] = time_in.get(frame.function, 0) + int(length)
    assert max(time_in, key=lambda function: time_in[function]) == "normalize"


def test_a_graph_launch_owns_its_kernels(shared_traces: Path) -> None:
    facts = first_in("mi300_vllm_graph")
    launch, kernels = np.unique(facts.work.launch[facts.work.launch != NONE], return_counts=True)
    graph = launch[kernels.argmax()]
    assert facts.events.names[facts.events.name[graph]] == "hipGraphLaunch"
    assert kernels.max() > 400  # of the replay
    # The launch was before the steady window, in which its kernels run.
    assert facts.events.start_ns[graph] < facts.window.start_ns
    assert graph in facts.launches.costs.event
    assert facts.launches.modes.graph_launches == 1
