from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.launches.launch_bound import RULE
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import CompileLogBuilder, HostThread, TraceBuilder
from tests.rules.stage import facts_of, figures, finding
from tests.trace.compile_log.test_read_log import PRINT_BREAK


def _eager(main: HostThread, *, count: int = 40, sequence: int | None = None, kernel: str = "mul") -> None:
    """Launch kernels of 5 µs every 20 µs."""
    for i in range(count):
        at = 20 * i
        main.op("aten::mul", at=at, us=15, sequence=None if sequence is None else sequence + i)
        main.launch(kernel, at=at + 5, us=5, runs_at=at + 11, runs_us=5)


def _compiled(main: HostThread) -> None:
    """The same kernels, written by the compiler."""
    _eager(main, kernel="triton_poi_fused_mul_0")


def _job() -> tuple[TraceBuilder, HostThread]:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    return trace, main


def _found(trace: TraceBuilder, folder: Path) -> Finding:
    found = finding(RULE.check(facts_of(trace, folder)))
    text = str(figures(found)["CUDA graph"][0])
    assert not ("not as it is" in text and "reduce-overhead" in found.fix.code)
    return found


def test_eager_code_is_compiled_or_graphed(tmp_path: Path) -> None:
    trace, main = _job()
    _eager(main)
    found = _found(trace, tmp_path)
    assert "replay the whole step as a CUDA graph" in found.fix.text
    assert "reduce-overhead" in found.fix.code
    assert "In compiled code" not in figures(found)


def test_without_a_graph_if_the_host_synchronizes(tmp_path: Path) -> None:
    trace, main = _job()
    _eager(main)
    main.sync(at=396, us=3)
    found = _found(trace, tmp_path)
    assert "not as it is" in str(figures(found)["CUDA graph"][0])
    assert "torch.compile(model)" in found.fix.code


@pytest.mark.parametrize(("us", "compiled"), [(1000, True), (300, False)])
def test_compiled_code_is_not_compiled_again(us: float, compiled: bool, tmp_path: Path) -> None:
    trace, main = _job()
    main.op("Torch-Compiled Region: 0/0", at=0, us=us)
    _compiled(main)
    found = _found(trace, tmp_path)
    assert "In compiled code" in figures(found)
    assert ("This code is already compiled" in found.fix.text) == compiled
    assert ("cpp_wrapper" in found.fix.code) == compiled
    assert ("compile the rest" in found.fix.code) != compiled
    assert "fuses elementwise kernels" not in found.fix.code


def test_a_backend_that_only_traces_is_to_be_replaced(tmp_path: Path) -> None:
    """As "aot_eager" does: the region runs the kernels of eager operators."""
    trace, main = _job()
    main.op("CompiledFunction", at=0, us=1000)
    _eager(main)
    found = _found(trace, tmp_path)
    assert "a backend that writes no kernels" in found.fix.text
    assert 'backend="inductor"' in found.fix.code
    assert "cpp_wrapper" not in found.fix.code


def test_kernels_of_inductor_need_no_name_of_their_own(tmp_path: Path) -> None:
    trace, main = _job()
    main.op("CompiledFunction", at=0, us=1000)
    _eager(main)
    main.launch("triton_", at=950, us=5, runs_at=960, runs_us=1)
    assert "a backend that writes no kernels" not in _found(trace, tmp_path).fix.text


def test_a_synchronization_outside_compiled_code_does_not_rule_out_its_graph(tmp_path: Path) -> None:
    trace, main = _job()
    main.op("Torch-Compiled Region: 0/0", at=0, us=700)
    _compiled(main)
    main.sync(at=756, us=3)
    assert "reduce-overhead" in _found(trace, tmp_path).fix.code


def test_a_synchronization_in_compiled_code_rules_out_its_graph(tmp_path: Path) -> None:
    trace, main = _job()
    main.op("Torch-Compiled Region: 0/0", at=0, us=1000)
    _compiled(main)
    main.sync(at=396, us=3)
    found = _found(trace, tmp_path)
    assert "1 synchronization in compiled code" in str(figures(found)["CUDA graph"][0])
    assert "cpp_wrapper" in found.fix.code


def test_graphs_that_are_in_use_are_extended(tmp_path: Path) -> None:
    trace, main = _job()
    _eager(main, count=39)
    main.graph_launch([("gemm", 800, 10), ("gemm", 810, 10)], at=785, us=10)
    found = _found(trace, tmp_path)
    assert found.fix.text.startswith("CUDA graphs are in use: capture the rest")
    assert "in use: 1 launch for 4.9% of the GPU's work" in str(figures(found)["CUDA graph"][0])
    assert "torch.compile" not in found.fix.code


def test_what_graphs_cannot_capture_is_fused(tmp_path: Path) -> None:
    """A mask is made into lists item by item, each with a read of a value, beside a model in a graph."""
    trace, main = _job()
    _eager(main, count=39)
    main.sync(at=396, us=3)
    main.graph_launch([("gemm", 800, 10), ("gemm", 810, 10)], at=785, us=10)
    assert _found(trace, tmp_path).fix.text.startswith("CUDA graphs are in use: fuse what they cannot")


@pytest.mark.parametrize("training", [True, False])
def test_only_training_gets_advice_about_its_optimizer(training: bool, tmp_path: Path) -> None:
    trace, main = _job()
    _eager(main)
    if training:
        main.annotation("Optimizer.step#AdamW.step", at=900, us=50)
    assert ("optimizer" in _found(trace, tmp_path).fix.code) == training


def test_a_pipeline_gets_its_own_arguments(tmp_path: Path) -> None:
    trace, main = _job()
    main.frame("transformers/pipelines/base.py(1120): __call__", at=0, us=1000)
    _eager(main)
    code = _found(trace, tmp_path).fix.code
    assert "pipe(dataset, batch_size=16)" in code
    assert "torch.stack(items)" not in code


@pytest.mark.parametrize(
    ("count", "backward", "said"), [(11, False, True), (10, False, False), (11, True, False)]
)
def test_reports_an_autograd_graph_without_a_backward_pass(
    count: int, backward: bool, said: bool, tmp_path: Path
) -> None:
    trace, main = _job()
    _eager(main, count=count, sequence=7)
    if backward:
        main.op("MulBackward0", at=900, us=10, sequence=7, forward_thread=1)
    assert ("Autograd graph without a backward pass" in figures(_found(trace, tmp_path))) == said


@pytest.mark.parametrize(
    ("operator", "flag"), [("vllm::moe_forward", "enforce_eager"), ("sglang::mm", "--disable-cuda-graph")]
)
def test_an_inference_server_is_configured_not_compiled(operator: str, flag: str, tmp_path: Path) -> None:
    trace, main = _job()
    main.op(operator, at=0, us=10)
    _eager(main)
    found = _found(trace, tmp_path)
    assert flag in found.fix.code
    assert "torch.compile" not in found.fix.code


def test_a_server_that_replays_graphs_is_told_what_to_do_between_them(tmp_path: Path) -> None:
    trace, main = _job()
    main.op("vllm::moe_forward", at=0, us=10)
    main.graph_launch([("node", 2.0, 1.0)], at=0, us=1)
    _eager(main)
    found = _found(trace, tmp_path)
    assert "--async-scheduling" in found.fix.code
    assert "torch.cuda.graph" not in found.fix.code


def test_the_log_says_what_breaks_graphs_and_why_cuda_graphs_are_left_out(tmp_path: Path) -> None:
    trace, main = _job()
    main.op("Torch-Compiled Region: 5/0", at=0, us=1000)
    main.op("## Call CompiledFxGraph f1 ##", at=1, us=3)
    main.op("Torch-Compiled Region: 6/0", at=104, us=800)
    _eager(main)
    log = CompileLogBuilder()
    log.artifact("dynamo_graph_break_reason", "5/0", PRINT_BREAK)
    skipped = "skipping cudagraphs due to mutated inputs (1 instances)"
    log.metrics("5/0", "forward", "/me/train.py", 20, cudagraph_skip_reason=skipped)
    log.metrics("6/0", "torch_dynamo_resume_in_forward_at_24", "/me/train.py", 24)
    log.write(tmp_path)
    evidence = figures(finding(RULE.check(read_facts(only_trace(str(trace.write(tmp_path)))))))
    lines, between, worst = evidence["Graph breaks"]
    assert (lines, between) == (number(1, "line"), duration(100_000, "between the graphs"))
    assert str(worst).startswith("“train.py”, line 24: “Failed to trace builtin operator")
    assert "left them out because of “mutated inputs (1 instances)”" in str(evidence["CUDA graph"][0])
