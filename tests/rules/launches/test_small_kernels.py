from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.launches import launch_bound
from tb_gpudiag.rules.launches.small_kernels import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import predicted_of, with_saving
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import Generation, HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, findings, is_clear
from tests.with_each import with_each

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def _loop(
    operators: list[str],
    *,
    turns: int = 20,
    mark: str = "",
    kernel: str = ELEMENTWISE,
    kernel_us: float = 2,
    step_us: float = 2000,
    generation: Generation = "C2",
) -> TraceBuilder:
    """Build a loop in which, every 20 µs, an operator of 18 µs launches a kernel: launched at 8 µs for 7 µs,
    starting 1 µs later. The GPU is busy before and after the loop."""
    trace = TraceBuilder(generation)
    main = trace.thread()
    main.step(0, at=0, us=step_us)
    main.frame("train.py(40): update", at=0, us=step_us)
    main.launch("gemm", at=1, us=5, runs_at=8, runs_us=110)
    ends = 100 + 20 * len(operators) * turns
    if mark:
        main.annotation(mark, at=99, us=ends - 98)
    for i in range(turns * len(operators)):
        at = 100 + 20 * i
        main.op(operators[i % len(operators)], at=at, us=18)
        main.launch(kernel, at=at + 8, us=7, runs_at=max(118, at + 16), runs_us=kernel_us)
    main.launch("gemm", at=ends, us=5, runs_at=ends + 6, runs_us=step_us - ends - 6)
    return trace


def test_fires_on_gradients_filled_with_zeros(tmp_path: Path) -> None:
    trace = _loop(["aten::fill_"], mark="Optimizer.zero_grad#SGD.zero_grad")
    found = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(found, list)
    (one,) = found
    # Idle from 120 to 136 µs before the second kernel, and for 18 of 20 µs before each of 18 more.
    cost_ns = 16_000 + 18 * 18_000
    assert one.cost_ns == cost_ns
    assert "20 small kernels from “Optimizer.zero_grad#SGD.zero_grad”" in one.title
    evidence = figures(one)
    assert evidence["Idle before these launches"] == (
        duration(cost_ns),
        share_of(cost_ns, 2_000_000, "of the step window"),
    )
    assert evidence["Launches"] == (number(20, "launch", "launches"), number(1, "cluster"))
    assert "set_to_none=True" in one.fix.code
    assert (one.places[0].file, one.places[0].line) == ("train.py", 40)


@pytest.mark.parametrize(
    ("operators", "mark", "fix"),
    [
        (["aten::mul_", "aten::add_"], "Optimizer.step#SGD.step", "fused=True"),
        (["aten::mul_", "aten::add_", "aten::sqrt"], "", "_foreach_"),
    ],
)
def test_the_fix_fits_the_loop(operators: list[str], mark: str, fix: str, tmp_path: Path) -> None:
    found = RULE.check(facts_of(_loop(operators, mark=mark), tmp_path))
    assert isinstance(found, list)
    assert fix in found[0].fix.code
    assert figures(found[0])["Operators"] == tuple(f"“{name}”" for name in sorted(operators))


def test_gradients_added_to_zeros_need_no_kernel(tmp_path: Path) -> None:
    trace = _loop(["aten::add_"])
    main = HostThread(trace, trace.recording.host[0].thread)
    for i in range(20):
        main.op("torch::autograd::AccumulateGrad", at=99.5 + 20 * i, us=19)
    (one,) = findings(RULE.check(facts_of(trace, tmp_path)))
    assert "20 small kernels from “torch::autograd::AccumulateGrad”" in one.title
    assert "set_to_none=True" in one.fix.code


@pytest.mark.parametrize("created", [True, False])
def test_a_loop_may_take_its_backward_pass_along(created: bool, tmp_path: Path) -> None:
    """Twenty tanh forward, and twenty more kernels that autograd launches for them, or for something else."""
    trace = TraceBuilder()
    main, autograd = trace.thread(), trace.thread("pt_autograd_0")
    main.step(0, at=0, us=1_000)
    main.frame("train.py(40): step", at=0, us=1_000)
    for turn in range(20):
        at = 10 + 20 * turn
        main.op("aten::tanh", at=at, us=18, sequence=turn)
        main.launch("tanh", at=at + 8, us=7, runs_at=at + 16, runs_us=2)
        at = 500 + 20 * turn
        sequence = 19 - turn if created else 100 + turn
        autograd.op("TanhBackward0", at=at, us=18, sequence=sequence, forward_thread=1)
        autograd.launch("tanh_backward", at=at + 8, us=7, runs_at=at + 16, runs_us=2)
    facts = facts_of(trace, tmp_path)
    one = next(f for f in findings(RULE.check(facts)) if "aten::tanh" in str(figures(f)["Operators"]))
    saving = with_saving(one, facts, predicted_of(facts)).saving
    assert saving is not None
    most = saving.possible[1] * facts.window.duration_ns
    assert (most > 500_000) == created  # each half takes 400 µs
    assert ("backward pass" in saving.beyond) == created


@pytest.mark.parametrize("generation", ["A", "C2"])
def test_suggests_a_larger_batch_if_memory_is_known_to_have_room(
    generation: Generation, tmp_path: Path
) -> None:
    """The oldest traces do not say how much was allocated before the recording."""
    trace = _loop(["aten::fill_"], generation=generation)
    HostThread(trace, trace.recording.host[0].thread).alloc(2**20, at=10)
    (one,) = findings(RULE.check(facts_of(trace, tmp_path)))
    assert ("Room for a larger batch" in figures(one)) == (generation == "C2")


def test_elementwise_operators_in_a_row_are_one_chain(tmp_path: Path) -> None:
    operators = [
        f"aten::{name}" for name in ("add", "mul", "tanh", "div", "exp", "log", "neg", "abs", "sin", "cos")
    ]
    found = RULE.check(facts_of(_loop(operators, turns=1), tmp_path))
    assert isinstance(found, list)
    assert "torch.compile" in found[0].fix.code


def test_just_under_the_thresholds_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_loop(["aten::fill_"], turns=9), tmp_path / "turns")))
    # 340 µs are 1.98% of 17,200 µs.
    assert is_clear(RULE.check(facts_of(_loop(["aten::fill_"], step_us=17_200), tmp_path / "share")))
    assert not is_clear(RULE.check(facts_of(_loop(["aten::fill_"], step_us=17_000), tmp_path / "over")))


def test_layers_of_a_model_are_not_a_loop(tmp_path: Path) -> None:
    layers = _loop(["aten::addmm", "aten::relu"], kernel="ampere_sgemm_128x64_tn")
    assert is_clear(RULE.check(facts_of(layers, tmp_path)))


def test_kernels_of_one_operator_are_not_a_loop(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.op("aten::sort", at=0, us=900)
    for i in range(40):
        main.launch("radixSort", at=20 * i + 8, us=7, runs_at=20 * i + 16, runs_us=2)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_launch_bound_does_not_count_its_time_again(tmp_path: Path) -> None:
    facts = facts_of(_loop(["aten::fill_"]), tmp_path)
    alone = finding(launch_bound.RULE.check(facts))
    assert alone.cost_ns > 300_000
    assert {f.rule.id for f in run_rules(facts, RULES).findings} >= {"GD202"}
    assert "GD201" not in {f.rule.id for f in run_rules(facts, RULES).findings}


@pytest.mark.parametrize(("waits", "said"), [(0, "possible"), (1, "not as it is: 1 sync")])
def test_says_what_prevents_a_cuda_graph(waits: int, said: str, tmp_path: Path) -> None:
    trace = _loop(["aten::fill_"])
    main = HostThread(trace, trace.recording.host[0].thread)
    for _ in range(waits):
        main.sync(at=30, us=20)
    found = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(found, list)
    assert said in str(figures(found[0])["CUDA graph"])


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([4, 8, 8], "every step runs the same operators and matmuls"),
        ([8, 8, 9], "shapes differ from step"),
        ([0, 0, 0], "which the trace does not say"),
    ],
)
def test_a_cuda_graph_needs_the_same_shapes_in_every_step(
    sizes: list[int], said: str, tmp_path: Path
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step, size in enumerate(sizes):
        main.step(step, at=1000 * step, us=1000)
        for i in range(20):
            at = 1000 * step + 20 * i
            main.op("aten::add_", at=at, us=18)
            main.launch(ELEMENTWISE, at=at + 8, us=7, runs_at=at + 16, runs_us=2)
        main.op("aten::mm", at=1000 * step + 500, us=20, shapes=[[size, 4], [4, 2]] if size else None)
        main.launch("gemm", at=1000 * step + 505, us=5, runs_at=1000 * step + 515, runs_us=5)
    (one,) = findings(RULE.check(facts_of(trace, tmp_path)))
    assert said in str(figures(one)["CUDA graph"])


def _apple(
    *,
    parameters: int = 10,
    us: float = 200,
    grouped: bool = False,
    backward: str = "mps_convolution_backward",
    mark: str = "Optimizer.step#Adam.step",
) -> TraceBuilder:
    """Build a step on a GPU that is not recorded: 5 operators of the optimizer for each parameter."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.op(f"aten::{backward}", at=1, us=5)
    main.annotation(mark, at=500, us=us)
    for operator in range(5 * parameters):
        at = 501 + operator * (us - 10) / (5 * parameters)
        main.op("aten::_foreach_mul_" if grouped else "aten::mul_", at=at, us=1.5)
        main.op("aten::empty", at=at + 0.5, us=0.5)
    return trace


def test_an_optimizer_on_a_gpu_that_was_not_recorded_is_a_hint(tmp_path: Path) -> None:
    facts = facts_of(_apple(), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("“Optimizer.step#Adam.step” takes 20.0% of the main thread's time")
    assert figures(found)["Operators"][0] == number(50, "operator")
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert "fused=True" in found.fix.code


@pytest.mark.parametrize(("us", "said"), [(260, True), (190, False)])
def test_an_optimizer_on_the_cpu_is_a_hint_if_it_takes_a_fifth(
    us: float, *, said: bool, tmp_path: Path
) -> None:
    answer = RULE.check(facts_of(_apple(us=us, backward="convolution_backward"), tmp_path))
    if said:
        assert finding(answer).title.startswith("“Optimizer.step#Adam.step” takes 26.0%")
        assert "larger batch" in finding(answer).summary
        assert finding(answer).leads
    else:
        assert cannot_tell(answer)


@with_each("trace", [_apple(parameters=9), _apple(us=99), _apple(grouped=True)])
def test_few_operators_little_time_and_foreach_are_clear(trace: TraceBuilder, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


@with_each(
    ("mark", "updates"),
    [
        ("[pl][profile][Strategy]DDPStrategy.optimizer_step", True),
        ("[pl][profile]optimizer_step_0", True),
        ("[pl][profile][Callback]Histograms.on_before_optimizer_step", False),
        ("[pl][profile][LightningModule]Net.on_before_optimizer_step", False),
    ],
)
def test_a_hook_of_lightning_before_the_optimizer_is_none(
    mark: str, *, updates: bool, tmp_path: Path
) -> None:
    answer = RULE.check(facts_of(_apple(us=260, backward="convolution_backward", mark=mark), tmp_path))
    assert isinstance(answer, CannotTell) != updates


def test_an_optimizer_that_runs_the_backward_pass_itself_does_more_than_update(tmp_path: Path) -> None:
    trace = _apple(us=260, backward="convolution_backward")
    main = HostThread(trace, trace.recording.host[0].thread)
    main.op("autograd::engine::evaluate_function: AddmmBackward0", at=755, us=2)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))
