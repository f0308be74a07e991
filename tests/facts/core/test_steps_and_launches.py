"""Steps, windows, launches, copies, busy time and hotspots, each from a trace with an obvious answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each

US = 1000


def test_steps_are_those_of_the_host_each_once_in_order() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(10, at=500, us=400).step(9, at=0, us=500)
    trace.gpu_annotation("ProfilerStep#9", at=100, us=700)
    steps = facts_of(trace).steps
    assert steps.names == ["ProfilerStep#9", "ProfilerStep#10"]
    assert steps.start_ns.tolist() == [0, 500 * US]
    assert steps.end_ns.tolist() == [500 * US, 900 * US]


def test_marks_of_one_name_that_follow_each_other_are_different_steps() -> None:
    """As where a sanity check before the training counted steps, too. A mark inside its own kind is none."""
    trace = TraceBuilder()
    trace.thread().step(2, at=0, us=90).step(1, at=100, us=90).step(2, at=200, us=90).step(3, at=300, us=90)
    trace.thread().step(3, at=310, us=70)
    steps = facts_of(trace).recorded_steps
    assert steps.names == ["ProfilerStep#2", "ProfilerStep#1", "ProfilerStep#2 (2)", "ProfilerStep#3"]
    assert ((steps.end_ns - steps.start_ns) == 90 * US).all()


def test_a_lone_mark_around_several_iterations_is_several_steps_without_what_sets_them_up() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000).op("aten::normal_", at=10, us=400)
    for i in range(5):
        main.op("aten::mm", at=500 + 100 * i, us=50)
        main.annotation("Optimizer.step#Adam.step", at=560 + 100 * i, us=30)
    steps = facts_of(trace).recorded_steps
    assert steps.names == [f"ProfilerStep#0, iteration {n}" for n in (2, 3, 4, 5)]
    assert steps.start_ns.tolist() == [590 * US, 690 * US, 790 * US, 890 * US]
    assert steps.end_ns[-1] == 990 * US


def test_a_lone_step_with_two_optimizers_is_one_step() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000).op("aten::mm", at=10, us=400)
    for i in range(2):
        main.annotation("Optimizer.step#Adam.step", at=500 + 100 * i, us=30)
    assert facts_of(trace).recorded_steps.names == ["ProfilerStep#0"]


def test_the_step_window_ends_with_the_work_that_the_steps_launched() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=100, us=400)
    main.launch("inside", at=450, us=10, runs_at=600, runs_us=200)
    main.launch("after", at=900, us=10, runs_at=920, runs_us=200)
    main.op("aten::later", at=1200, us=10)
    window = facts_of(trace).window
    assert window.duration_ns == 700 * US


def test_without_steps_the_window_is_the_whole_recording() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::mm", at=50, us=100).launch("k", at=100, us=10, runs_at=120, runs_us=30)
    facts = facts_of(trace)
    assert not facts.recorded.steps
    assert facts.window.duration_ns == 100 * US


def test_an_id_decides_whatever_the_clocks_say() -> None:
    trace = TraceBuilder()
    trace.thread().launch("early", at=50_000, us=10, runs_at=100, runs_us=50)
    assert facts_of(trace).work.linked.all()


def _gpu_work(number: int, args: dict[str, int]) -> dict[str, Any]:
    at = 1_000 + 100 * number
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at, "dur": 50, "args": args}


def _host(name: str, at: int, us: int, args: dict[str, int], category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 9, "ts": at, "dur": us, "args": args}


def _origins(*events: dict[str, Any]) -> list[str]:
    """Names of what each kernel's launch and origin are, such as `hipLaunchKernel aten::mm`."""
    trace = TraceBuilder()
    for event in events:
        trace.raw(event)
    facts = facts_of(trace)
    names, work, tree = facts.events.names, facts.work, facts.host.operator
    calls = ["-" if i == NONE else names[facts.events.name[i]] for i in work.launch]
    operators = ["-" if i == NONE else names[facts.events.name[tree[i]]] for i in work.origin]
    return [f"{call} {operator}" for call, operator in zip(calls, operators, strict=True)]


@with_each("correlation", [1, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2, "18446744073709551614"])
def test_a_correlation_of_64_bits_joins(correlation: int | str, tmp_path: Path) -> None:
    """One that a number with a sign does not hold is a number all the same."""
    events = [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 5},
        {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 5},
    ]
    more = {"ph": "X", "args": {"correlation": correlation, "device": 0, "stream": 7}}
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": [{**event, **more} for event in events]}))
    work = Facts(read_trace(str(path))).work
    assert work.linked.tolist() == [True]


def test_a_recorder_without_correlations_joins_launches_by_external_id() -> None:
    """Old ROCm: the external id of a kernel is its launch's, and no operator's."""
    launch = [
        _host("hipLaunchKernel", at, 5, {"External id": id_}, "cuda_runtime")
        for at, id_ in ((20, 5), (60, 6))
    ]
    operators = [
        _host("aten::mm", 10, 30, {"External id": 6}),
        _host("aten::add", 50, 30, {"External id": 5}),
    ]
    work = [
        _gpu_work(0, {"External id": 5}),
        _gpu_work(1, {"External id": 6}),
        _gpu_work(2, {"External id": 7}),
    ]
    assert _origins(*operators, *launch, *work) == [
        "hipLaunchKernel aten::mm",
        "hipLaunchKernel aten::add",
        "- -",
    ]


def test_work_without_a_launch_has_the_operator_that_its_external_id_names() -> None:
    operators = [
        _host("aten::mm", 10, 30, {"External id": 6}),
        _host("aten::add", 50, 30, {"External id": 5}),
    ]
    launch = _host("cudaLaunchKernel", 20, 5, {"External id": 6, "correlation": 77}, "cuda_runtime")
    work = [
        _gpu_work(0, {"External id": 6, "correlation": 77}),
        _gpu_work(1, {"External id": 5, "correlation": 78}),
        _gpu_work(2, {"External id": 9, "correlation": 79}),
        _gpu_work(3, {"External id": 5}),
    ]
    late = _host("aten::late", 5_000, 30, {"External id": 9})  # begins after the work
    assert _origins(*operators, launch, *work, late) == [
        "cudaLaunchKernel aten::mm",
        "- aten::add",
        "- -",
        "- aten::add",
    ]


def test_external_ids_that_are_correlations_name_no_operator() -> None:
    """In torch 2.0 to 2.2, a kernel's external id is its correlation."""
    operator = _host("aten::mm", 10, 30, {"External id": 5})
    work = [_gpu_work(number, {"External id": 5 + number, "correlation": 5 + number}) for number in range(2)]
    assert _origins(operator, *work) == ["- -", "- -"]
    # A launch outside of the operator that its kernel names shows the same.
    launch = _host("cudaLaunchKernel", 70, 5, {"correlation": 6}, "cuda_runtime")
    caller = _host("aten::add", 60, 30, {"External id": 9})
    other = _host("aten::sum", 40, 10, {"External id": 6})
    assert _origins(operator, other, caller, launch, *work) == ["- -", "cudaLaunchKernel aten::add"]


def test_external_ids_that_equal_correlations_by_chance_name_operators() -> None:
    """A recording whose every operator launches one kernel counts both from 1."""
    operators = [_host(f"aten::op{n}", 10 * n, 9, {"External id": n}) for n in (1, 2)]
    work = [_gpu_work(n, {"External id": n, "correlation": n}) for n in (1, 2)]
    assert _origins(*operators, *work) == ["- aten::op1", "- aten::op2"]
    launch = _host("hipLaunchKernel", 12, 5, {"External id": 1, "correlation": 1}, "cuda_runtime")
    assert _origins(*operators, launch, *work) == ["hipLaunchKernel aten::op1", "- aten::op2"]


def test_which_launches_found_the_queue_empty() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("a", at=0, us=10, runs_at=20, runs_us=100)  # nothing before it
    main.launch("b", at=30, us=10, runs_at=120, runs_us=50)  # a still runs
    main.launch("c", at=300, us=10, runs_at=320, runs_us=50)  # b ended long ago
    main.graph_launch([("g1", 400, 10), ("g2", 411, 10)], at=330, us=10)  # c still runs
    facts = facts_of(trace)
    names = [facts.events.names[i] for i in facts.events.name[facts.work.event]]
    assert dict(zip(names, facts.work.empty_queue.tolist(), strict=True)) == {
        "a": True,
        "b": False,
        "c": True,
        "g1": False,
        "g2": False,
    }


def test_driver_and_hip_launches_are_joined() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i, call in enumerate(("cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaLaunchKernelExC")):
        main.launch(f"k{i}", at=100 * i, us=10, runs_at=100 * i + 20, runs_us=50, call=call)
    assert (facts_of(trace).work.launch != NONE).all()


def test_names_of_copies_give_direction_and_kind_of_memory() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.copy("HtoD", at=0, us=10, runs_at=20, runs_us=10, bytes=4096)
    main.copy("HtoD", at=40, us=10, runs_at=60, runs_us=10, bytes=8192, pinned=True)
    main.copy("DtoH", at=80, us=10, runs_at=100, runs_us=10, bytes=4)
    main.copy("DtoD", at=120, us=10, runs_at=140, runs_us=10, bytes=16)
    transfers = facts_of(trace).transfers
    assert transfers.bytes.tolist() == [4096, 8192, 4, 16]
    assert transfers.pageable.tolist() == [True, False, True, False]
    assert transfers.to_device.tolist() == [True, True, False, False]


def test_copying_and_communicating_count_only_where_exposed() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("gemm", at=0, us=5, runs_at=100, runs_us=100)
    main.launch("ncclDevKernel_AllReduce_Sum", at=6, us=5, runs_at=150, runs_us=100, stream=20)
    main.copy("HtoD", at=12, us=5, runs_at=180, runs_us=120, bytes=1 << 20, pinned=True, stream=21)
    device = facts_of(trace).device
    assert device is not None
    busy = device.busy
    assert (busy.computing.total, busy.communicating.total, busy.copying.total) == (
        100 * US,
        50 * US,
        50 * US,
    )
    assert busy.all.total == 200 * US


def test_hotspots_by_operator_line_and_kernel() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for at in (100, 200, 300):
        main.frame("train.py(5): loop", at=at, us=60)
        main.op("aten::add", at=at + 5, us=30)
        main.launch("add_kernel", at=at + 20, us=10, runs_at=at + 35, runs_us=4)
    main.frame("train.py(9): big", at=500, us=100).op("aten::mm", at=510, us=80)
    main.graph_launch([("g1", 560, 30), ("g2", 590, 30)], at=530, us=20)
    facts = facts_of(trace)
    operator = {h.key: h for h in facts.launches.hotspots["operator"]}
    assert operator["aten::add"].launches == 3
    assert operator["aten::add"].host_ns == 30 * US
    assert operator["aten::add"].kernel_ns == 12 * US
    assert operator["aten::add"].empty_queue_share == 1.0
    # Each: 15 µs of dispatch, 10 in the call, 5 until the kernel starts; in the step window the first too.
    assert operator["aten::add"].idle_ns == 3 * 30 * US
    assert operator["aten::mm"].launches == 1
    assert operator["aten::mm"].kernel_ns == 60 * US
    lines = {h.key: h.launches for h in facts.launches.hotspots["line"]}
    assert lines == {"loop (train.py, defined at line 5)": 3, "big (train.py, defined at line 9)": 1}
    assert {h.key for h in facts.launches.hotspots["kernel"]} == {"add_kernel", "g1"}


def test_hotspots_by_module() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("nn.Module: Net_0", at=0, us=500).frame("nn.Module: Linear_3", at=100, us=200)
    main.launch("gemm", at=150, us=10, runs_at=170, runs_us=50)
    main.launch("relu", at=350, us=10, runs_at=370, runs_us=50)
    assert {h.key: h.launches for h in facts_of(trace).launches.hotspots["module"]} == {
        "Linear_3": 1,
        "Net_0": 1,
    }


def test_a_backward_kernel_has_the_line_and_module_of_its_forward_operator() -> None:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    for number, (line, module) in enumerate([(5, "Linear_0"), (9, "Linear_1")]):
        at = 100 * number
        main.frame(f"model.py({line}): forward", at=at, us=80).frame(f"nn.Module: {module}", at=at + 5, us=70)
        main.op("aten::linear", at=at + 10, us=40, sequence=number)
        main.op("aten::t", at=at + 15, us=5, sequence=number)
    for number in (1, 0):
        at = 500 - 100 * number
        engine.op("autograd::engine::evaluate_function: X", at=at, us=80)
        engine.op("AddmmBackward0", at=at + 5, us=70, sequence=number, forward_thread=1)
        engine.launch("gemm", at=at + 20, us=10, runs_at=at + 35, runs_us=20)
    facts = facts_of(trace)
    assert {h.key: h.launches for h in facts.launches.hotspots["line"]} == {
        "forward (model.py, defined at line 5)": 1,
        "forward (model.py, defined at line 9)": 1,
    }
    assert {h.key: h.launches for h in facts.launches.hotspots["module"]} == {"Linear_0": 1, "Linear_1": 1}


@with_each(
    ("launches", "latency_us", "turnaround_us"),
    [
        (9, [40.0], 20),  # too few to judge
        (12, [4.0], 20),
        (12, [36.0], 72),
        (12, [4.0, 4.0, 2_000.0], 20),  # the rest waits for another process
        (12, [2_000.0], 100),  # all of it does
    ],
)
def test_the_turnaround_is_that_of_launches_to_an_idle_gpu(
    launches: int, latency_us: list[float], turnaround_us: int
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for number in range(launches):
        at = 10_000 * number
        after = latency_us[number % len(latency_us)]
        main.launch("gemm", at=at, us=5, runs_at=at + 5 + after, runs_us=3)
    assert facts_of(trace).work.turnaround_ns == turnaround_us * 1_000


def test_a_lone_step_that_the_end_of_the_recording_cut_is_none() -> None:
    """The one before it began ahead of the recording, so it is not marked."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(5):
        main.op("aten::mm", at=i * 100, us=90)
        main.launch("gemm", at=i * 100 + 10, us=5, runs_at=i * 100 + 20, runs_us=80)
    main.step(1, at=505, us=14)
    assert not len(facts_of(trace).recorded_steps)
