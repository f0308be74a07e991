"""Jobs recorded on an H200, and what a stopwatch said of them without the profiler."""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tb_gpudiag
from tb_gpudiag.report.wire import to_dict

pytestmark = pytest.mark.slow  # each test diagnoses a whole recording

RECORDED = Path(__file__).parent / "recorded"


@cache
def report(name: str, variant: str) -> dict[str, Any]:
    return to_dict(tb_gpudiag.diagnose(str(RECORDED / name / variant)))


def timed_ms(name: str, variant: str) -> float:
    times: dict[str, list[float]] = json.loads((RECORDED / name / "times.json").read_text())
    return 1e3 * statistics.mean(times[variant])


def loud(one: dict[str, Any]) -> list[str]:
    return [finding["rule"] for finding in one["findings"] if finding["severity"] != "INFO"]


def busy_ms(one: dict[str, Any]) -> float:
    """How long the GPU works in a step."""
    (device,) = one["devices"]
    return float((device["window_us"] - device["window_idle_us"]) / 1e3 / len(one["steps"]))


@pytest.mark.parametrize(
    ("name", "limiter", "first"),
    [
        ("prefetch_from_pageable_memory", "copy", "GD302"),
        ("outputs_brought_back", "copy", "GD302"),
        ("one_worker", "input", "GD101"),
        ("mixture_of_experts_in_a_loop", "launch", "GD201"),
        ("launch_blocking_left_on", "launch", "GD301"),
    ],
)
def test_what_a_stopwatch_confirmed_comes_first(name: str, limiter: str, first: str) -> None:
    one = report(name, "before")
    assert one["verdict"]["limiter"] == limiter
    assert loud(one)[0] == first
    assert next(found for found in one["findings"] if found["rule"] == first)["saving"]["high_us"] > 0


@pytest.mark.parametrize("name", ["one_worker", "launch_blocking_left_on"])
def test_what_a_fix_gave_without_the_profiler_lies_in_the_promised_range(name: str) -> None:
    saving = report(name, "before")["findings"][0]["saving"]
    assert saving["low_share"] < 1 - timed_ms(name, "after") / timed_ms(name, "before") < saving["high_share"]


@pytest.mark.parametrize("name", ["matmuls_in_tf32", "loss_read_each_step_without_harm"])
def test_a_healthy_job_has_no_finding_above_a_hint(name: str) -> None:
    one = report(name, "before")
    assert one["verdict"]["limiter"] == "compute"
    assert not loud(one)
    assert busy_ms(one) > 0.9 * timed_ms(name, "before")


@pytest.mark.parametrize("name", ["alibi_bias_built_on_cpu", "batches_padded_to_the_model_maximum"])
def test_a_host_that_only_the_recorder_slows_is_not_blamed(name: str) -> None:
    """The GPU is idle for a third of the recorded time, and for a tenth of the timed one."""
    one = report(name, "after")
    assert busy_ms(one) > 0.9 * timed_ms(name, "after")
    assert one["verdict"]["limiter"] in {"compute", "unknown"}
    assert not {"GD102", "GD201", "GD202"} & set(loud(one))


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("alibi_bias_built_on_cpu", "after"),
        ("batches_padded_to_the_model_maximum", "after"),
        ("mixture_of_experts_in_a_loop", "before"),
    ],
)
def test_a_step_without_the_profiler_is_within_the_range_that_is_said(name: str, variant: str) -> None:
    step = report(name, variant)["step_time"]
    least_ms, most_ms = step["unprofiled_least_us"] / 1e3, step["unprofiled_most_us"] / 1e3
    assert 0.97 * least_ms < timed_ms(name, variant) < 1.03 * most_ms
    assert step["median_us"] / 1e3 > 1.4 * timed_ms(name, variant)


@pytest.mark.parametrize(
    ("name", "rows", "layers", "format", "peak"),
    [
        # Each layer's products forward, and twice as many backward, but no gradient of the input.
        (
            "loss_read_each_step_without_harm",
            8192,
            [(4096, 8192), (8192, 4096)] * 6 + [(4096, 4096)],
            "BF16",
            989,
        ),
        ("matmuls_in_tf32", 8192, [(4096, 4096)] * 5, "TF32", 494),
        ("gelu_in_a_python_function", 16384, [(1024, 4096), (4096, 1024)] * 4, "BF16", 989),
    ],
)
def test_flops_of_a_step_follow_from_the_layers(
    name: str, rows: int, layers: list[tuple[int, int]], format: str, peak: float
) -> None:
    found = report(name, "before")["mfu"]
    products = [2 * rows * inputs * outputs for inputs, outputs in layers]
    assert found["step_operations"] == pytest.approx(3 * sum(products) - products[0], rel=1e-9)
    assert (found["computes_in"], found["peak_teraflops"]) == (format, pytest.approx(peak))
    # By the stopwatch, without the profiler.
    timed = found["step_operations"] / (timed_ms(name, "before") * peak * 1e9)
    assert found["mfu"] == pytest.approx(timed, rel=0.05)
