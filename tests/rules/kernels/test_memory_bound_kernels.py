from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.memory_bound_kernels import RULE
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, facts_of, figures, finding, is_clear, one_step, removed_ns

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >()"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()"
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"


def one_after_another(kernels: list[tuple[str, float]], folder: Path, operator: str = "aten::add") -> Facts:
    """Facts of a step that runs these (name, µs) on one stream."""
    trace, main = one_step()
    begins = STEP_AT + 20
    for i, (name, us) in enumerate(kernels):
        main.op(operator, at=STEP_AT + 10 * i, us=9)
        main.launch(name, at=STEP_AT + 10 * i + 2, us=5, runs_at=begins, runs_us=us)
        begins += us
    return facts_of(trace, folder)


def test_a_fused_run_takes_as_long_as_its_longest_kernel(tmp_path: Path) -> None:
    run = [(ADD, 100.0), (NORM, 150.0), (ADD, 100.0), (GEMM, 100.0), (ADD, 50.0)]
    facts = one_after_another(run, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 200_000
    assert removed_ns(found, facts) == 200_000
    assert RULE.severity_of(found, facts.window.duration_ns) == Severity.INFO
    evidence = figures(found)
    assert evidence["Memory-bound kernels"][0] == duration(400_000)
    assert evidence["Elementwise"][0] == duration(250_000)
    assert evidence["Normalization"][0] == duration(150_000)
    assert evidence["Removable by fusion"][0] == duration(200_000)
    assert evidence["Removable kernels"] == (number(2),)


def test_passes_of_an_optimizer_become_one(tmp_path: Path) -> None:
    facts = one_after_another([(ADD, 100.0)] * 4, tmp_path, "aten::_foreach_addcmul_")
    fix = finding(RULE.check(facts)).fix
    assert "optimizer" in fix.text
    assert "fused=True" in fix.code
    assert "torch.compile" not in fix.code


def test_compiled_code_is_not_compiled_again(tmp_path: Path) -> None:
    trace, main = one_step()
    main.op("Torch-Compiled Region: 0/0", at=STEP_AT, us=50)
    for i in range(2):
        name = f"triton_poi_fused_add_{i}"
        main.launch(name, at=STEP_AT + 10 + 10 * i, us=5, runs_at=STEP_AT + 60 + 150 * i, runs_us=150)
    facts = facts_of(trace, tmp_path)
    fix = finding(RULE.check(facts)).fix
    assert "graph breaks" in fix.text
    assert "torch.compile(model)" not in fix.code


@pytest.mark.parametrize(
    "kernels",
    [
        [(ADD, 99.0), (ADD, 300.0)],  # just under the threshold
        [(ADD, 300.0), (GEMM, 100.0), (ADD, 300.0)],  # not a run
        [(ADD, 4.9)] * 60,  # limited by launching
        [(GEMM, 400.0), (GEMM, 400.0)],
    ],
)
def test_kernels_that_fusing_hardly_speeds_up_are_clear(
    kernels: list[tuple[str, float]], tmp_path: Path
) -> None:
    assert is_clear(RULE.check(one_after_another(kernels, tmp_path)))


def test_a_run_does_not_span_streams(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=STEP_AT, us=STEP_US)
    for stream in (7, 20):
        trace.kernel(ADD, at=STEP_AT, us=400, stream=stream)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))
