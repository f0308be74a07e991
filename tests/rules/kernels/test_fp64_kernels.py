from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.fp64_kernels import RULE
from tb_gpudiag.wording.quantity import duration, share_of, throughput
from tests.builder import DeviceProperties
from tests.rules.stage import STEP_AT, STEP_US, facts_of, figures, finding, is_clear, one_step, removed_ns

GEFORCE = DeviceProperties("NVIDIA GeForce RTX 4090", compute_major=8, compute_minor=9)
A100 = DeviceProperties("NVIDIA A100-SXM4-80GB", compute_major=8)
DGEMM = "volta_dgemm_64x64_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double> >(int)"


def _inference(kernel: str, us: float, device: DeviceProperties, folder: Path) -> Facts:
    trace, main = one_step()
    trace.recording.devices = [device]
    main.frame("serve.py(12): predict", at=STEP_AT, us=STEP_US)
    main.op("aten::mm", at=STEP_AT, us=15)
    main.launch(kernel, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    return facts_of(trace, folder)


@pytest.mark.parametrize("kernel", [DGEMM, ADD])
def test_fires_on_fp64_and_bounds_the_saving_by_the_peaks(kernel: str, tmp_path: Path) -> None:
    facts = _inference(kernel, 500, GEFORCE, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 500_000
    assert removed_ns(found, facts) == pytest.approx(500_000 * (1 - 1.29 / 82.6), abs=1)
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert found.places[0].line == 12
    evidence = figures(found)
    assert evidence["FP64 kernels"] == (duration(500_000), share_of(1, 2, "of the step window"))
    assert evidence["FP64 matmuls"][0] == duration(500_000 if kernel == DGEMM else 0)
    assert evidence["Stated FP64 peak"] == (throughput(1.29),)


def test_a_gpu_for_scientific_computing_gets_a_hint(tmp_path: Path) -> None:
    facts = _inference(DGEMM, 500, A100, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert removed_ns(found, facts) == 250_000  # half of the bytes


def test_little_fp64_and_other_kernels_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(_inference(DGEMM, 49, GEFORCE, tmp_path / "short")))
    assert is_clear(RULE.check(_inference("ampere_sgemm_128x64_nn", 900, GEFORCE, tmp_path / "fp32")))


def test_fp64_beside_longer_other_kernels_came_in_unnoticed(tmp_path: Path) -> None:
    trace, main = one_step()
    trace.recording.devices = [A100]
    main.launch(ADD, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=200)
    main.launch("gemm", at=STEP_AT + 15, us=5, runs_at=STEP_AT + 220, runs_us=700)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert found.removable is not None
    assert found.removable.least is not None  # something is saved for sure
