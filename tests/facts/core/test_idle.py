"""The idle ledger: one trace for each cause, and invariants on any trace."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.facts.facts import Facts
from tests.builder import Generation, HostThread, TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.facts.invariants import assert_invariants
from tests.some_values import EACH_GENERATION
from tests.with_each import with_each

US = 1000


def between_two_kernels(name: str = "python") -> tuple[TraceBuilder, HostThread]:
    """Build a kernel from 110 to 200 µs, and a launch at 500 whose kernel starts at 520: 320 µs of idle
    time."""
    trace = TraceBuilder()
    main = trace.thread(name)
    main.step(0, at=0, us=1000)
    main.launch("first", at=90, us=10, runs_at=110, runs_us=90)
    main.launch("second", at=500, us=10, runs_at=520, runs_us=100)
    return trace, main


def causes(facts: Facts) -> dict[Cause, int]:
    """Return cause -> µs over the GPU span, and check the invariants."""
    assert_invariants(facts)
    device = facts.device
    assert device is not None
    return {cause: ns // US for cause, ns in device.ledger.by_cause(device.span).items()}


def triggers(facts: Facts) -> set[Trigger]:
    device = facts.device
    assert device is not None
    return set(device.ledger.by_trigger(device.span))


def test_user_code_between_operators() -> None:
    trace, _ = between_two_kernels()
    facts = facts_of(trace)
    assert causes(facts) == {Cause.PYTHON: 300, Cause.LAUNCH: 10, Cause.LATENCY: 10}
    assert triggers(facts) == {Trigger.STARVED}


def test_where_only_calls_were_recorded_it_is_the_host_that_works_between_them() -> None:
    """With activities=[CUDA], nothing says that it is Python."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=90, us=10, runs_at=110, runs_us=90)
    main.launch("second", at=500, us=10, runs_at=520, runs_us=100)
    assert causes(facts_of(trace)) == {Cause.HOST: 300, Cause.LAUNCH: 10, Cause.LATENCY: 10}


@with_each(
    ("what", "cause"),
    [
        ("aten::mm", Cause.DISPATCH),
        ("c10d::allreduce_", Cause.COLLECTIVE),
        ("entire_frame_compile (dynamo_timed)", Cause.COMPILE),
    ],
)
def test_inside_an_operator(what: str, cause: Cause) -> None:
    trace, main = between_two_kernels()
    main.op(what, at=300, us=150)
    assert causes(facts_of(trace)) == {cause: 150, Cause.PYTHON: 150, Cause.LAUNCH: 10, Cause.LATENCY: 10}


@with_each(
    ("call", "cause"),
    [
        ("cudaMalloc", Cause.ALLOCATOR),
        ("cudaFree", Cause.ALLOCATOR),
        ("hipHostMalloc", Cause.ALLOCATOR),
        ("cuModuleLoadData", Cause.COMPILE),
        ("cudaDeviceSynchronize", Cause.SYNC),
        ("hipStreamSynchronize", Cause.SYNC),
        ("cudaMemcpy", Cause.SYNC),
        ("cudaFuncGetAttributes", Cause.DISPATCH),
    ],
)
def test_inside_a_call_below_an_operator(call: str, cause: Cause) -> None:
    trace, main = between_two_kernels()
    main.op("aten::empty", at=300, us=150).call(call, at=320, us=100)
    found = causes(facts_of(trace))
    expected = {cause: 100, Cause.DISPATCH: 50, Cause.PYTHON: 150, Cause.LAUNCH: 10, Cause.LATENCY: 10}
    if cause == Cause.DISPATCH:
        expected[cause] = 150
    assert found == expected


def test_anything_below_data_loading_is_input() -> None:
    trace, main = between_two_kernels()
    main.loader(at=250, us=200).op("aten::stack", at=300, us=100).call("cudaHostAlloc", at=310, us=50)
    assert causes(facts_of(trace)) == {
        Cause.INPUT: 200,
        Cause.PYTHON: 100,
        Cause.LAUNCH: 10,
        Cause.LATENCY: 10,
    }


@pytest.mark.parametrize(
    "frame",
    ["torch/_dynamo/convert_frame.py(1): __call__", "torch/fx/graph_module.py(944): __deepcopy__"],
)
def test_anything_below_compilation_is_compile(frame: str) -> None:
    trace, main = between_two_kernels()
    main.frame(frame, at=250, us=200)
    main.op("aten::mm", at=300, us=100)
    assert causes(facts_of(trace))[Cause.COMPILE] == 200


def test_queued_work_is_not_attributed_to_the_host() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=10, runs_at=20, runs_us=80)
    main.launch("second", at=20, us=10, runs_at=400, runs_us=100)
    main.op("aten::slow", at=100, us=300)
    facts = facts_of(trace)
    assert causes(facts) == {Cause.QUEUED: 300}
    assert triggers(facts) == {Trigger.QUEUED}


def test_a_bare_turnaround_between_queued_kernels_is_latency() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=10, runs_at=20, runs_us=80)
    main.launch("second", at=20, us=10, runs_at=102, runs_us=100)
    assert causes(facts_of(trace)) == {Cause.LATENCY: 2}


def a_graph(*nodes: tuple[str, float, float], us: float = 10, call: str = "cudaGraphLaunch") -> TraceBuilder:
    trace = TraceBuilder()
    trace.thread().graph_launch(list(nodes), at=0, us=us, call=call)
    return trace


def test_a_bare_turnaround_between_nodes_of_a_graph_is_not_the_hosts() -> None:
    facts = facts_of(a_graph(("a", 20, 80), ("b", 102, 100), ("c", 205, 10)))
    assert causes(facts) == {Cause.GRAPH: 5}
    assert triggers(facts) == {Trigger.QUEUED}


def test_before_the_first_node_of_a_graph_the_cause_is_as_for_any_launch() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("copy", at=0, us=10, runs_at=15, runs_us=5)
    main.graph_launch([("a", 120, 10), ("b", 132, 10)], at=100, us=10)
    assert causes(facts_of(trace)) == {Cause.HOST: 80, Cause.LAUNCH: 10, Cause.LATENCY: 10, Cause.GRAPH: 2}


def test_a_node_that_waits_for_long_waits_for_something() -> None:
    assert causes(facts_of(a_graph(("a", 20, 80), ("b", 400, 100)))) == {Cause.QUEUED: 300}


@pytest.mark.parametrize(
    ("call", "cause"), [("cudaGraphLaunch", Cause.GRAPH), ("hipGraphLaunch", Cause.LAUNCH)]
)
def test_while_the_call_hands_over_nodes_one_by_one_gaps_are_the_hosts(call: str, cause: Cause) -> None:
    assert causes(facts_of(a_graph(("a", 20, 10), ("b", 34, 10), us=100, call=call))) == {cause: 4}


def test_a_long_launch_of_a_graph_loads_nothing() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("copy", at=0, us=10, runs_at=15, runs_us=5)
    main.graph_launch([("a", 4_130, 10), ("b", 4_142, 10)], at=120, us=4_000)
    assert causes(facts_of(trace)) == {
        Cause.HOST: 100,
        Cause.LAUNCH: 4_000,
        Cause.LATENCY: 10,
        Cause.GRAPH: 2,
    }


def test_a_turnaround_between_two_graphs_is_launch_latency() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.graph_launch([("a", 20, 80)], at=0, us=10)
    main.graph_launch([("a", 103, 80)], at=12, us=10)
    assert causes(facts_of(trace)) == {Cause.LATENCY: 3}


def test_work_without_a_launch_is_unlinked_and_still_keeps_the_device_busy() -> None:
    trace, _ = between_two_kernels()
    trace.kernel("stray", at=300, us=50)
    facts = facts_of(trace)
    assert causes(facts) == {Cause.UNLINKED: 100, Cause.PYTHON: 150, Cause.LAUNCH: 10, Cause.LATENCY: 10}
    assert triggers(facts) == {Trigger.UNKNOWN, Trigger.STARVED}


def test_work_on_another_stream_fills_the_gap() -> None:
    trace, main = between_two_kernels()
    main.launch("side", at=100, us=5, runs_at=150, runs_us=370, stream=20)
    assert causes(facts_of(trace)) == {}


def test_a_blocking_call_drains_the_queue() -> None:
    trace, main = between_two_kernels()
    main.sync(at=120, us=85)  # blocks until 5 µs after the first kernel's end
    facts = facts_of(trace)
    assert causes(facts) == {Cause.SYNC: 5, Cause.PYTHON: 295, Cause.LAUNCH: 10, Cause.LATENCY: 10}
    assert triggers(facts) == {Trigger.DRAINED}
    assert facts.device is not None
    # Blocked for 80 µs until the gap began: without the call the host would have been that much earlier.
    assert 80 * US <= int(facts.device.ledger.drained_ns.sum()) <= 85 * US


def test_a_blocking_call_on_an_empty_queue_drains_nothing() -> None:
    trace, main = between_two_kernels()
    main.sync(at=300, us=50)
    facts = facts_of(trace)
    assert triggers(facts) == {Trigger.STARVED}
    assert facts.device is not None
    assert int(facts.device.ledger.drained_ns.sum()) == 0


def test_the_profiler_and_lazy_loading_have_causes_of_their_own() -> None:
    trace, main = between_two_kernels()
    main.op("aten::mm", at=250, us=265)
    trace.overhead("Buffer Flush", at=300, us=40).overhead("Lazy Function Loading", at=360, us=30)
    found = causes(facts_of(trace))
    assert found[Cause.PROFILER] == 40
    assert found[Cause.COMPILE] == 30
    assert found[Cause.DISPATCH] == 180


def test_a_long_first_launch_of_a_kernel_loads_its_module() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=10, runs_at=20, runs_us=80)
    main.launch("second", at=100, us=5000, runs_at=5110, runs_us=80)
    main.launch("second", at=5200, us=5000, runs_at=10210, runs_us=80)
    found = causes(facts_of(trace))
    assert found[Cause.INITIALIZATION] == 5000
    assert found[Cause.LAUNCH] == 5000  # its module is already loaded: something else


def test_loading_a_module_may_begin_while_earlier_work_runs() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=10, runs_at=20, runs_us=4500)
    main.launch("second", at=100, us=5000, runs_at=5110, runs_us=80)
    found = causes(facts_of(trace))
    assert found[Cause.INITIALIZATION] == 5100 - 4520


def test_a_wait_that_returns_at_once_drains_nothing() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=10, runs_at=20, runs_us=80)
    main.sync("cudaEventSynchronize", at=97.5, us=1.5)
    main.launch("second", at=400, us=10, runs_at=420, runs_us=80)
    assert triggers(facts_of(trace)) == {Trigger.STARVED}


def test_after_the_last_work_no_queue_is_drained() -> None:
    """A result that is fetched at the end of what was recorded keeps no later launch waiting."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.launch("first", at=10, us=10, runs_at=30, runs_us=470)
    main.sync(at=50, us=455)
    main.frame("image.py(3): save", at=510, us=480)
    facts = facts_of(trace)
    assert facts.device is not None
    assert int(facts.device.ledger.drained_ns.sum()) == 0
    assert facts.device.ledger.by_cause(facts.window)[Cause.PYTHON] == 495 * US + 10 * US


def backward_on_its_own_thread() -> tuple[TraceBuilder, HostThread, HostThread]:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    main.step(0, at=0, us=1000)
    main.op("aten::mm", at=80, us=30).launch("forward", at=90, us=10, runs_at=110, runs_us=90)
    return trace, main, engine


def test_a_thread_before_its_first_operator_hands_over_to_the_one_it_waits_for() -> None:
    trace, main, engine = backward_on_its_own_thread()
    main.op("aten::loss", at=220, us=100)
    engine.op("aten::backward", at=400, us=200).launch("backward", at=500, us=10, runs_at=520, runs_us=50)
    found = causes(facts_of(trace))
    # 220-320 µs is the main thread's operator, 400-500 µs the engine's. Around them no thread is in a span.
    assert found[Cause.DISPATCH] == 200
    assert found[Cause.PYTHON] == 100


def test_the_thread_that_called_backward_hands_over_to_the_engine() -> None:
    trace, main, engine = backward_on_its_own_thread()
    main.frame("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", at=120, us=330)
    engine.op("aten::backward", at=250, us=150)
    engine.launch("warm", at=125, us=1, runs_at=126, runs_us=1, stream=20)  # so that it is a launching thread
    main.op("aten::step", at=460, us=60).launch("optimizer", at=500, us=10, runs_at=520, runs_us=50)
    found = causes(facts_of(trace))
    # In 200-450 the engine had an operator for 150 µs; its own dispatch is the rest of the wait.
    assert found[Cause.DISPATCH] == 250 + 40
    assert found[Cause.PYTHON] == 10


def test_frames_that_never_return_are_seen_through() -> None:
    """Frames that are open when the recording begins, and record_function.__enter__, enclose all that
    follows."""
    trace, main = between_two_kernels()
    main.frame("train.py(3): train", at=0, us=1000)
    main.frame("torch/profiler/profiler.py(821): step", at=1, us=998)
    main.op("aten::mm", at=300, us=150)
    facts = facts_of(trace)
    assert causes(facts) == {Cause.PYTHON: 150, Cause.DISPATCH: 150, Cause.LAUNCH: 10, Cause.LATENCY: 10}


def test_the_profilers_own_frames_are_its_own_time() -> None:
    trace, main = between_two_kernels()
    main.frame("torch/profiler/profiler.py(821): step", at=300, us=100)
    main.frame("importlib/__init__.py(108): import_module", at=310, us=80)
    assert causes(facts_of(trace))[Cause.PROFILER] == 100


def test_kernels_of_one_graph_launch_leave_no_false_idle_time() -> None:
    trace = TraceBuilder()
    kernels = [(f"k{i}", 100 + 10 * i, 9.0) for i in range(20)]
    trace.thread().graph_launch(kernels, at=50, us=40)
    assert causes(facts_of(trace)) == {Cause.GRAPH: 19}


def test_time_before_the_first_and_after_the_last_kernel_counts_in_the_window_only() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(9): normalize", at=0, us=400)
    main.launch("only", at=400, us=10, runs_at=420, runs_us=80)
    main.sync(at=500, us=20)
    facts = facts_of(trace)
    assert causes(facts) == {}
    device = facts.device
    assert device is not None
    window = {cause: ns // US for cause, ns in device.ledger.by_cause(device.window).items()}
    assert window == {Cause.PYTHON: 880, Cause.LAUNCH: 10, Cause.LATENCY: 10, Cause.SYNC: 20}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_every_generation_has_the_same_causes(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.loader(at=10, us=60)
    for at in (100, 400):
        main.op("aten::mm", at=at, us=60).launch("gemm", at=at + 20, us=10, runs_at=at + 35, runs_us=100)
    main.loader(at=250, us=100)
    found = causes(facts_of(trace))
    assert found[Cause.INPUT] == 100
    assert found[Cause.DISPATCH] == 20
    assert found[Cause.LAUNCH] == 10
    assert found[Cause.LATENCY] == 5
    assert sum(found.values()) == 200


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_invariants_on_any_trace(trace: TraceBuilder) -> None:
    assert_invariants(facts_of(trace))
