"""Traces of other programs are refused and named; everything that torch writes is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tb_gpudiag.errors import NotATrace
from tests.builder import Generation, TraceBuilder
from tests.some_values import EACH_GENERATION
from tests.trace.support import document, read_bytes, span
from tests.with_each import with_each


def array(*events: dict[str, Any]) -> bytes:
    return json.dumps(events).encode()


def process(name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}


def without_category(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in span(**fields).items() if key != "cat"}


PADDING = [process("x" * 100)] * 100  # metadata that fills the first block of the file

OTHERS = {
    "torch.autograd.profiler": array(without_category(pid="CPU functions", args={})),
    "ONNX Runtime": array(
        span("model_loading_array", cat="Session"), span("Conv_0", cat="Node"), span("gemm", cat="Kernel")
    ),
    "Triton": document(span("load", cat="add_kernel", pid="add_kernel Core0 CTA0", tid="warp 0")),
    "TensorFlow": document(process("/device:GPU:0"), *PADDING, without_category(name="MatMul")),
    "torch.compile's log": array({**span("entire_frame_compile", cat="dynamo_timed"), "ph": "B"}),
    "Chrome": document(*PADDING, span("RunTask", cat="disabled-by-default-devtools.timeline")),
    "VizTracer": document(span("main", cat="FEE")),
    "NCCL": array({"ph": "b", "cat": "GROUP_API", "name": "Group API", "id": 0, "pid": 1, "tid": 1, "ts": 1}),
    "rocprof": document(process("1 CPU HIP API"), without_category(args={"BeginNs": "1"})),
    "written by hand": document(without_category(name="forward"), span("backward", cat="step")),
}


@with_each("writer", OTHERS)
def test_what_another_program_wrote_is_refused_and_named(writer: str) -> None:
    with pytest.raises(NotATrace, match=writer) as refused:
        read_bytes(OTHERS[writer])
    assert "not a recording of torch.profiler" in refused.value.what
    assert "torch.profiler.profile(" in refused.value.remedy


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_a_span_of_torch_in_any_generation_is_enough(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    trace.thread().op("aten::mm", at=1, us=1)
    assert read_bytes(trace.bytes()).events_read


@with_each("category", ["Operator", "cpu_op", "Runtime", "xpu_driver", "gpu_memcpy", "enqueue"])
def test_one_event_of_torch_among_many_others_is_enough(category: str) -> None:
    others = [span(f"request {i}", i, cat="server") for i in range(500)]
    assert len(read_bytes(array(*others, span(cat=category))).events) == 501


def test_a_recording_of_nothing_is_torchs_own() -> None:
    """An empty recording has the profiler's span, and a newer one top-level values."""
    assert read_bytes(array(span("PyTorch Profiler (0)", cat="Trace", pid="Spans"))).events_read == 1
    assert read_bytes(document(process("python"), schemaVersion=1)).events_read == 1
    assert read_bytes(document()).events_read == 0


def test_memory_events_are_torchs_own() -> None:
    memory = {"ph": "i", "name": "[memory]", "ts": 1, "pid": 1, "tid": 1, "args": {"Bytes": 8}}
    assert len(read_bytes(array(memory)).memory) == 1
