from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.kernels.unfused_attention import RULE
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.rules.stage import STEP_AT, facts_of, figures, finding, is_clear, one_step, removed_ns

GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>()"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128> >()"


def attention(kernel: str, operator: str, us: float, folder: Path) -> Facts:
    """Facts of a step with two matmuls of 100 µs, and this kernel in between."""
    trace, main = one_step()
    main.frame("model.py(30): attend", at=STEP_AT, us=100)
    begins = STEP_AT + 50
    for i, (name, lasts) in enumerate([(GEMM, 100.0), (kernel, us), (GEMM, 100.0)]):
        main.op("aten::_softmax" if name == kernel else operator, at=STEP_AT + 10 * i, us=9)
        main.launch(name, at=STEP_AT + 10 * i + 2, us=5, runs_at=begins, runs_us=lasts)
        begins += lasts
    return facts_of(trace, folder)


def test_fires_on_what_runs_between_the_two_matmuls(tmp_path: Path) -> None:
    facts = attention(SOFTMAX, "aten::bmm", 300, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == removed_ns(found, facts) == 300_000
    assert (found.places[0].file, found.places[0].operator) == ("model.py", "aten::_softmax")
    evidence = figures(found)
    assert evidence["Between the matmuls"] == (
        duration(300_000),
        share_of(300_000, 1_000_000, "of the step window"),
    )
    assert evidence["Unfused attention"] == (number(1, "time"),)
    assert [(r.start_ns, r.end_ns - r.start_ns) for r in found.ranges] == [(250_000, 300_000)]


def test_with_shapes_the_matmuls_beyond_their_arithmetic_count_as_saved(tmp_path: Path) -> None:
    trace, main = one_step(devices=("NVIDIA H100 80GB HBM3",))
    shapes = [[16, 2048, 64], [16, 64, 2048]]
    for i, (name, operator, us) in enumerate(
        [(GEMM, "aten::bmm", 200), (SOFTMAX, "aten::_softmax", 300), (GEMM, "aten::bmm", 200)]
    ):
        main.op(operator, at=STEP_AT + 10 * i, us=9, shapes=shapes, types=["c10::BFloat16"] * 2)
        main.launch(name, at=STEP_AT + 10 * i + 2, us=5, runs_at=STEP_AT + 50 + 250 * i, runs_us=us)
        if i == 1:
            trace.recording.gpu[-1] = replace(trace.recording.gpu[-1], end_ns=600_000)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 200_000
    arithmetic_ns = 2 * 2 * 16 * 2048 * 64 * 2048 / 989e3
    assert removed_ns(found, facts) == pytest.approx(200_000 + 400_000 - arithmetic_ns, abs=1)
    assert figures(found)["The matmuls"][0] == duration(400_000)


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(attention(SOFTMAX, "aten::bmm", 49, tmp_path)))


def test_a_classifiers_softmax_and_fused_attention_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(attention(SOFTMAX, "aten::addmm", 300, tmp_path / "classifier")))
    assert is_clear(RULE.check(attention(FLASH, "aten::bmm", 300, tmp_path / "fused")))
