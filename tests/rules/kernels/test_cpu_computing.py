from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.cpu_computing import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import duration, share_of
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import facts_of, figures, finding, findings, is_clear


def _passes(
    convolution_us: float, *, loading_us: float = 0, backward: bool = False, gradients: bool = True
) -> TraceBuilder:
    """Ten passes of 1,000 µs on the CPU: loading, a convolution, and as long as is left, a matmul.

    gradients: whether autograd numbers the operators, as it does while they are on."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(10):
        at = 1_000 * i
        if loading_us:
            main.loader(at=at, us=loading_us)
        numbers = (2 * i, 2 * i + 1) if gradients else (None, None)
        main.op("aten::mkldnn_convolution", at=at + loading_us, us=convolution_us, sequence=numbers[0])
        rest_us = 990 - loading_us - convolution_us
        main.op("aten::mm", at=at + loading_us + convolution_us, us=rest_us, sequence=numbers[1])
    if backward:
        main.op("autograd::engine::evaluate_function: Mm", at=9_991, us=5, forward_thread=1, sequence=0)
    return trace


def test_what_computes_comes_first_and_promises_nothing(tmp_path: Path) -> None:
    facts = facts_of(_passes(700), tmp_path)
    assert find_verdict(facts).limiter == "compute"
    first = run_rules(facts, RULES).findings[0]
    assert (first.rule.id, first.severity, first.finding.saving) == ("GD514", Severity.INFO, None)
    shown = figures(first.finding)["aten::mkldnn_convolution"]
    assert shown == (duration(7_000_000), share_of(7_000_000, facts.window.duration_ns, "of the step window"))
    assert first.finding.fix.text.startswith("Run the model on a GPU if there is one. See that")
    assert "inference_mode" in first.finding.fix.code


def test_compiled_code_is_not_told_to_compile(tmp_path: Path) -> None:
    trace = _passes(700)
    HostThread(trace, trace.recording.host[0].thread).op("Torch-Compiled Region: 0/0", at=9_992, us=5)
    fix = run_rules(facts_of(trace, tmp_path), RULES).findings[0].finding.fix
    assert "bfloat16" in fix.code
    assert "compile" not in fix.text + fix.code


def test_a_gpu_that_torch_could_not_use_comes_first(tmp_path: Path) -> None:
    """35 is CUDA's number for a driver that is missing or too old."""
    error = "ERROR:2026-01-08 DeviceProperties.cpp:47] gpuGetDeviceCount failed with code 35"
    trace = TraceBuilder(devices=(), top_level={"ERROR": [error]})
    main = trace.thread()
    for at in range(0, 10_000, 1_000):
        main.op("aten::mm", at=at, us=990)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.fix.text.startswith("If this machine has a GPU, update its driver")
    assert (
        "torch found no GPU driver, or one that is too old for it (error 35)" in find_verdict(facts).sentence
    )


@pytest.mark.parametrize(
    ("us", "looked_up", "head", "share"),
    [
        (100, 64, 10, 0.4),  # the optimizer goes over the table for 300 of 1,000 us, too
        (100, 5_000, 10, 0.1),  # of a table of 1,000 rows, each may be used
        (100, 64, 1_000, 0.1),  # the table also multiplies, as the head of a language model: all rows learn
        (90, 5_000, 10, 0),
    ],
)
def test_gradients_of_whole_tables(
    us: float, looked_up: int, head: int, share: float, tmp_path: Path
) -> None:
    """They are mostly filled with zeros."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.op("aten::embedding", at=at, us=1, shapes=[[1_000, 16], [looked_up]])
        main.op("aten::linear", at=at + 2, us=598, shapes=[[looked_up, 16], [head, 16]])
        main.op("aten::embedding_dense_backward", at=at + 600, us=us)
        main.op("aten::fill_", at=at + 601, us=us - 2)
        step_of = main.op("Optimizer.step#SGD.step", at=at + 700, us=300)
        step_of.op("aten::add_", at=at + 700, us=300, shapes=[[1_000, 16], [1_000, 16]])
    found = run_rules(facts_of(trace, tmp_path), RULES).findings[0].finding
    assert ("sparse=True" in found.fix.code) == (share > 0)
    if share:
        assert found.title.startswith(f"Making and using gradients of a whole table takes {100 * share:.1f}%")
        assert found.saving is not None
        assert found.saving.possible[1] == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize("how", [{"backward": True}, {"gradients": False}])
def test_only_an_inference_with_gradients_is_told_to_use_inference_mode(
    how: dict[str, bool], tmp_path: Path
) -> None:
    found = finding(RULE.check(facts_of(_passes(0.5, **how), tmp_path)))
    assert "inference" not in found.fix.text + found.fix.code


def test_the_inputs_that_take_longest_are_said_where_they_are_recorded(tmp_path: Path) -> None:
    """Of a convolution with thousands of taps, or of all rows of a table, they say what to change."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.op("aten::mm", at=at, us=390, shapes=[[8, 64], [64, 10]])
        main.op("aten::mm", at=at + 400, us=590, shapes=[[1_024, 64], [64, 20_000], []])
    found = findings(RULE.check(facts_of(trace, tmp_path)))[-1]
    assert found.fix.text.startswith("“aten::mm” of [[1024,64],[64,20000]] takes 59.0%. Run the model")


def test_it_is_clear_where_loading_limits_the_job(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_passes(100, loading_us=450), tmp_path / "loading")))


def test_it_comes_after_what_costs_much_of_the_time(tmp_path: Path) -> None:
    facts = facts_of(_copying(), tmp_path)
    assert [found.rule.id for found in run_rules(facts, RULES).findings[:2]] == ["GD506", "GD514"]


def _copying() -> TraceBuilder:
    """Ten passes of 1,000 µs on the CPU, of which joining tensors takes 300."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(10):
        main.op("aten::cat", at=1_000 * i, us=300)
        main.op("aten::mm", at=1_000 * i + 300, us=690)
    return trace


@pytest.mark.parametrize(
    ("called", "inside", "said"),
    [
        (
            "aten::multinomial",
            "aten::exponential_",
            "“aten::multinomial” goes over all weights for each draw",
        ),
        ("aten::sort", "aten::copy_", "use topk"),
        ("aten::coalesce", "aten::_coalesce", "make it once, before the loop"),
        ("aten::log_softmax", "aten::_log_softmax", "torch.compile joins it"),
        (
            "aten::bincount",
            "aten::max",
            "Call “aten::bincount” less often, or on less data. Threads may also wait",
        ),
    ],
)
def test_the_fix_is_about_the_operator_that_the_job_calls(
    called: str, inside: str, said: str, tmp_path: Path
) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(10):
        main.op(called, at=1_000 * i, us=600).op(inside, at=1_000 * i + 1, us=590)
        main.op("aten::mm", at=1_000 * i + 600, us=390)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert said in found.fix.text
    assert "GPU" not in found.fix.text
    assert called in figures(found)
    assert found.places[0].operator == called
    assert not found.leads


@pytest.mark.parametrize(
    ("operator", "learns", "again"),
    [
        ("aten::arange", False, True),
        ("aten::arange", True, False),
        ("aten::randn", False, False),
        ("aten::cumsum", False, False),
    ],
)
def test_tensors_that_a_model_makes_again(
    operator: str, *, learns: bool, again: bool, tmp_path: Path
) -> None:
    """A function that a model calls takes 500 of 1,000 us: of sizes only, if it begins with `arange`, and
    the backward pass goes through none of it."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(10):
        at = 1_000 * i
        main.step(i, at=at, us=1_000).frame("train.py(9): train", at=at, us=999)
        main.frame("nn.Module: Attention_0", at=at, us=700).frame("model.py(25): forward", at=at, us=699)
        main.frame("model.py(12): bias", at=at, us=500)
        main.op(operator, at=at + 1, us=10)
        main.op("aten::exp", at=at + 20, us=470, sequence=100 + i if learns else None)
        main.op("aten::mm", at=at + 510, us=180, sequence=i)
        main.op("MmBackward0", at=at + 710, us=200, sequence=i, forward_thread=1)
        if learns:
            main.op("ExpBackward0", at=at + 910, us=20, sequence=100 + i, forward_thread=1)
    found = findings(RULE.check(facts_of(trace, tmp_path)))
    assert [one.title.startswith("Making tensors in the model") for one in found] == [True, False][
        1 - again :
    ]
    if again:
        assert (found[0].cost_ns, found[0].places[0].function) == (10 * 500_000, "bias")


@pytest.mark.parametrize(("kind", "said"), [("double", True), ("float", False)])
def test_numbers_of_64_bits_come_first(kind: str, *, said: bool, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for at in range(0, 10_000, 1_000):
        main.op("aten::mm", at=at, us=990, shapes=[[512, 512], [512, 512]], types=[kind, kind])
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.fix.text.startswith("Most of it multiplies float64") == said
    assert ("model.float()" in found.fix.code) == said
    assert ("Multiplying float64" in figures(found)) == said


def test_a_closure_is_not_the_optimizer_s_own_time(tmp_path: Path) -> None:
    """Lightning and LBFGS give the step a function with the forward and the backward pass, 800 of 950 µs."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(5):
        at = 1_000 * i
        step = main.annotation("Optimizer.step#Adam.step", at=at, us=950)
        step.op("aten::mm", at=at + 1, us=300, sequence=i)
        node = step.op("MmBackward0", at=at + 310, us=500, sequence=i, forward_thread=1)
        node.op("aten::mm", at=at + 311, us=490)
        step.op("aten::_fused_adam_", at=at + 820, us=120)
    facts = facts_of(trace, tmp_path)
    own = facts.events.duration_ns[facts.host_work.optimizer_steps]
    assert own.sum() == 5 * 120_000
