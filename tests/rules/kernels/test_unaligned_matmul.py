from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.kernels.unaligned_matmul import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, cannot_tell, facts_of, finding, healthy, is_clear, without_gpu

ALIGN1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)"


def product(name: str, share: float, shapes: list[list[int]] | None, folder: Path) -> Facts:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=STEP_AT, us=STEP_US)
    main.op("aten::bmm", at=STEP_AT, us=15, shapes=shapes)
    main.launch(name, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=STEP_US * share)
    return facts_of(trace, folder)


def test_fires_and_names_the_dimensions_to_blame(tmp_path: Path) -> None:
    found = finding(RULE.check(product(ALIGN1, 0.5, [[12, 197, 64], [12, 64, 197]], tmp_path)))
    assert found.cost_ns == 500_000
    assert found.saving is not None
    assert found.saving.basis == "estimate"
    evidence = {e.label: e.text for e in found.evidence}
    assert evidence["dimensions that are no multiple of 8"] == "197"  # a batch of 12 is no matter
    assert evidence["inputs [[12,197,64],[12,64,197]]"] == "500 µs"
    assert found.places[0].operator == "aten::bmm"


def test_without_shapes_it_is_the_name_that_tells(tmp_path: Path) -> None:
    found = finding(RULE.check(product(ALIGN1, 0.5, None, tmp_path)))
    assert not any(e.label.startswith("inputs") for e in found.evidence)


def test_half_precision_on_ordinary_cores_counts(tmp_path: Path) -> None:
    found = finding(RULE.check(product("ampere_fp16_sgemm_fp16_128x64_tn", 0.2, None, tmp_path)))
    assert found.cost_ns == 200_000


@pytest.mark.parametrize(
    ("name", "share"),
    [(ALIGN1, 0.049), (ALIGN1.replace("align1", "align8"), 0.9), ("ampere_sgemm_128x64_nn", 0.9)],
)
def test_is_clear_of_little_and_of_aligned_products(name: str, share: float, tmp_path: Path) -> None:
    assert is_clear(RULE.check(product(name, share, [[197, 64], [64, 197]], tmp_path)))


def test_a_healthy_job_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))


def test_real_odd_sequence_lengths_are_found(shared_traces: Path) -> None:
    from tb_gpudiag.trace.read import read_trace

    (file,) = (shared_traces / "h100_timesformer").glob("*.json.gz")
    found = finding(RULE.check(Facts(read_trace(str(file)))))
    assert {e.label: e.text for e in found.evidence}["dimensions that are no multiple of 8"] == "3137"
