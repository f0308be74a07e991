"""The builder writes what Kineto writes, so a test on a built trace applies to real ones."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.builder import BASE_NS, EPOCH_NS, Generation, TraceBuilder
from tests.some_values import EACH_GENERATION
from tests.with_each import with_each

REAL_TRACE_OF: dict[Generation, str] = {
    "A": "v100_resnet50_workers0",
    "B": "h100_transformer_two_windows",
    "B+": "v100_ddp_resnet_healthy",
    "C1": "h100_owlv2",
    "C2": "rtx5080_with_cuda_graph",
}

Event = dict[str, Any]


def small_training(generation: Generation) -> TraceBuilder:
    """Build one step with everything that a test can add."""
    trace = TraceBuilder(generation)
    main = trace.thread()
    main.frame("train.py(30): main", at=0, us=1000).frame("train.py(12): train_step", at=5, us=900)
    main.step(3, at=0, us=990)
    main.loader(at=10, us=100)
    main.copy("HtoD", at=120, us=20, runs_at=125.5, runs_us=12.25, bytes=4096)
    main.op("aten::linear", at=150, us=60, shapes=[[32, 64], [64, 64]])
    main.op("aten::addmm", at=155, us=50)
    main.launch("gemm", at=170, us=8, runs_at=200.125, runs_us=300)
    main.memset(at=215, us=5, runs_at=510, runs_us=2, bytes=512)
    main.graph_launch([("a", 600, 10), ("b", 612, 10)], at=590, us=6)
    address = main.alloc(1024, at=160, reserved=2048)
    main.item(at=700, us=100, runs_at=760)
    main.free(address, at=820)
    trace.kernel("unlinked", at=640, us=20, stream=20)
    trace.gpu_annotation("ProfilerStep#3", at=125.5, us=700)
    return trace


def of_category(trace: TraceBuilder, *categories: str) -> list[Event]:
    events: list[Event] = trace.document()["traceEvents"]
    return [event for event in events if event.get("cat") in categories]


def named(trace: TraceBuilder, name: str) -> Event:
    events: list[Event] = trace.document()["traceEvents"]
    (event,) = [event for event in events if event["name"] == name]
    return event


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_file_and_the_document_are_the_same(generation: Generation) -> None:
    trace = small_training(generation)
    assert json.loads(trace.bytes()) == trace.document()
    assert gzip.decompress(trace.bytes(gzipped=True)) == trace.bytes()


@with_each("generation", ["B+", "C1", "C2"])
def test_timestamps_are_exact_to_the_nanosecond(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    trace.thread().op("aten::mm", at=0.001, us=2.125)
    found = re.search(rb'"ts": ([\d.]+), "dur": ([\d.]+), "ph": "X", "cat": "cpu_op"', trace.bytes())
    assert found is not None
    base = 0 if generation == "B+" else BASE_NS
    assert Decimal(found[1].decode()) * 1000 + base == EPOCH_NS + 1
    assert Decimal(found[2].decode()) * 1000 == 2125


@pytest.mark.parametrize("generation", ["A", "B"])
def test_early_generations_cut_both_ends_to_whole_microseconds(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    trace.thread().op("aten::mm", at=1.9, us=2.2)
    operator = named(trace, "aten::mm")
    assert operator["ts"] == EPOCH_NS // 1000 + 1
    assert operator["dur"] == 3


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_work_has_the_correlation_of_its_launch(generation: Generation) -> None:
    trace = small_training(generation)
    launch = named(trace, "cudaLaunchKernel")["args"]["correlation"]
    assert named(trace, "gemm")["args"]["correlation"] == launch
    graph = named(trace, "cudaGraphLaunch")["args"]["correlation"]
    assert {named(trace, name)["args"]["correlation"] for name in "ab"} == {graph}
    calls = of_category(trace, "cuda_runtime", "Runtime")
    assert named(trace, "unlinked")["args"]["correlation"] not in {
        call["args"]["correlation"] for call in calls
    }


@with_each("generation", ["A", "B+", "C1", "C2"])
def test_a_kernel_names_the_innermost_operator_around_its_launch(generation: Generation) -> None:
    trace = small_training(generation)
    key = "external id" if generation == "A" else "External id"
    assert named(trace, "gemm")["args"][key] == named(trace, "aten::addmm")["args"]["External id"]


def test_generation_b_repeats_the_correlation_as_the_operator() -> None:
    kernel = named(small_training("B"), "gemm")["args"]
    assert kernel["External id"] == kernel["correlation"]


def test_generation_a_has_call_stacks_innermost_first_and_no_frames() -> None:
    trace = small_training("A")
    stack = named(trace, "aten::addmm")["args"]["Call stack"]
    assert stack == "train.py(12): train_step;train.py(30): main"
    assert of_category(trace, "python_function") == []


def test_frames_name_their_parents() -> None:
    trace = small_training("C2")
    outer, inner = (named(trace, f"train.py({place}")["args"] for place in ("30): main", "12): train_step"))
    assert outer["Python parent id"] is None
    assert inner["Python parent id"] == outer["Python id"]


def test_memory_totals_follow_the_events_of_each_device() -> None:
    trace = TraceBuilder("C2", devices=["GPU 0", "GPU 1"])
    main = trace.thread()
    first = main.alloc(100, at=1)
    main.alloc(7, at=2, device=1)
    main.alloc(50, at=3)
    main.free(first, at=4)
    totals = [
        (e["args"]["Device Id"], e["args"]["Total Allocated"])
        for e in of_category(trace, "cpu_instant_event")
    ]
    assert totals == [(0, 100), (1, 7), (0, 150), (0, 50)]


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_only_generation_c2_numbers_the_nodes_of_a_graph(generation: Generation) -> None:
    assert ("graph node id" in named(small_training(generation), "b")["args"]) is (generation == "C2")


def test_files_are_named_as_the_handler_names_them(tmp_path: Path) -> None:
    trace = small_training("C2")
    assert re.fullmatch(r"host_1\.\d{19}\.pt\.trace\.json", trace.write(tmp_path).name)
    assert trace.write(tmp_path, worker="w", time=5, gzipped=True) == tmp_path / "w.5.pt.trace.json.gz"
    assert re.fullmatch(r"host_1\.\d{13}\.pt\.trace\.json", small_training("A").write(tmp_path).name)


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_events_have_the_form_of_a_real_trace_of_that_generation(
    generation: Generation, shared_traces: Path
) -> None:
    """A built event has no key or argument that real events of its kind lack."""
    folder = shared_traces / REAL_TRACE_OF[generation]
    content = json.loads(gzip.decompress(sorted(folder.iterdir())[0].read_bytes()))
    real, built = forms(content["traceEvents"]), forms(small_training(generation).document()["traceEvents"])
    compared = set(real) & set(built)
    assert {"kernel" if generation != "A" else "Kernel"} <= {category for _, category, _ in compared}
    for kind in compared:
        assert built[kind] <= real[kind], f"{kind}: {sorted(built[kind] - real[kind])}"


# Written by some versions of a generation and not by others.
SOMETIMES = {"args.Input Dims", "args.Call stack", "args.graph id", "args.graph node id"}


def forms(events: list[Event]) -> dict[tuple[str, str, str], set[str]]:
    """Return (phase, category, name if the kind depends on it) -> all keys and argument names seen."""
    seen: dict[tuple[str, str, str], set[str]] = {}
    for event in events:
        name = event["name"] if event["ph"] in "iM" else ""
        keys = seen.setdefault((event["ph"], event.get("cat", ""), name), set())
        keys |= set(event) | {f"args.{key}" for key in event.get("args", {})}
        keys -= SOMETIMES
    return seen
