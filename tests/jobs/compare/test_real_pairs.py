"""Comparisons of real traces, checked by what their raw files say."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.jobs.compare.sides import made
from tests.real_traces import real_facts

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.usefixtures("shared_traces")]


@cache
def digests(folder: str) -> list[Digest]:
    found = []
    for file in find_traces(str(SHARED_TRACES / folder)).files:
        facts = real_facts(Path(file.path))
        found.append(build_digest(facts, build_report(facts, file), file))
    return found


@cache
def compared(base: str, candidate: str) -> pb.Comparison:
    return compare(digests(base), digests(candidate))


def raw(folder: str) -> list[dict[str, Any]]:
    (path,) = (SHARED_TRACES / folder).glob("*.json.gz")
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


PAIRS = [
    ("v100_resnet50_workers0", "v100_resnet50_workers4"),
    ("v100_resnet50_second_workers0", "v100_resnet50_second_workers4"),
    ("rtx5080_module_eager", "rtx5080_module_graphed"),
    ("diff_control", "diff_test"),
]


@pytest.mark.parametrize(("base", "candidate"), PAIRS)
def test_parts_add_up(base: str, candidate: str) -> None:
    found = compared(base, candidate)
    moved = sum(row.candidate_us - row.base_us for row in found.causes)
    assert moved == pytest.approx(found.mean_step_us.difference, abs=1e-6)


@pytest.mark.parametrize(("base", "candidate", "gone"), [(*PAIRS[0], 44_745), (*PAIRS[1], 35_486)])
def test_workers_load_while_the_gpu_computes(base: str, candidate: str, gone: float) -> None:
    found = compared(base, candidate)
    assert found.verdict == pb.Comparison.FASTER
    loading = {row.cause: row for row in found.causes}[pb.CauseTime.input]
    assert loading.candidate_us < 0.02 * loading.base_us
    assert "data loading" in found.sentence
    assert [finding.rule for finding in found.findings.gone] == ["GD101"]
    (promised,) = made(found)
    assert promised.real_us == pytest.approx(gone, rel=0.2)  # a little less without the profiler
    assert promised.promise in (pb.Verified.INSIDE, pb.Verified.CANNOT_TELL)


@pytest.mark.parametrize("before", ["a100_copies_pageable", "a100_copies_pageable_non_blocking"])
def test_a_promise_about_copies_is_kept_only_if_the_saving_lies_inside(before: str) -> None:
    """The steps hardly vary, and all of them is copying, which takes as long as the link does."""
    found = compared(before, "a100_copies_pinned")
    (promised,) = made(found)
    assert (promised.rule, promised.promise) == ("GD302", pb.Verified.INSIDE)
    assert promised.real_high_us - promised.real_low_us < 0.1 * promised.real_us
    (base,) = digests(before)
    once = []  # as it was promised once
    for found_before in base.findings:
        copied = pb.Finding()
        copied.CopyFrom(found_before)
        copied.saving.low_per_step_us, copied.saving.high_per_step_us = 41_800, 64_900
        once.append(copied)
    (row,) = made(compare([replace(base, findings=once)], digests("a100_copies_pinned")))
    assert row.promise == pb.Verified.BELOW


def test_the_raw_steps_of_workers() -> None:
    """The host's steps, which the GPU keeps up with, are as long as the steps of the comparison."""
    found = compared(*PAIRS[0])
    for folder, ours in zip(PAIRS[0], (found.step_us.base, found.step_us.candidate), strict=True):
        steps = sorted(e["ts"] for e in raw(folder) if e.get("name", "").startswith("ProfilerStep#"))
        between = [b - a for a, b in itertools.pairwise(steps)]
        # The first step of the candidate is 50 ms longer: it starts the workers.
        assert ours == pytest.approx(median(between), rel=0.02)


def test_a_graph_keeps_the_kernels_and_drops_the_launches() -> None:
    found = compared("rtx5080_module_eager", "rtx5080_module_graphed")
    assert found.verdict == pb.Comparison.FASTER
    causes = {pb.CauseTime.Cause.Name(row.cause): row.candidate_us - row.base_us for row in found.causes}
    # The profiler's own frames, too: it records fewer calls.
    on_host = causes["dispatch"] + causes["python"] + causes["profiler"]
    assert on_host < 0.8 * found.mean_step_us.difference
    assert abs(causes["computing"]) < 0.02 * found.mean_step_us.base
    gemms = [row for row in found.kernels if row.family == "gemm"]
    assert gemms
    assert all(row.base_count == row.candidate_count and not row.candidate_name for row in gemms)
    assert found.launches.candidate < 0.5 * found.launches.base


def test_kernels_of_a_step_are_those_of_the_file() -> None:
    found = compared("rtx5080_module_eager", "rtx5080_module_graphed")
    kernels = [e for e in raw("rtx5080_module_eager") if e.get("cat") == "kernel"]
    gemm = max((row for row in found.kernels if row.family == "gemm"), key=lambda row: row.base_us)
    own = [e for e in kernels if gemm.name.startswith(e["name"][:100])]
    steps = found.step_us.base_steps
    assert sum(e["dur"] for e in own) / steps == pytest.approx(gemm.base_us, rel=1e-6)
    assert len(own) / steps == gemm.base_count


def test_two_kinds_of_gpu_are_said() -> None:
    found = compared("diff_control", "diff_test")
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert "different GPUs (“NVIDIA A100-PG509-200” and “Tesla V100-SXM2-16GB”)" in found.sentence
    assert not made(found)
    renamed = [row for row in found.kernels if row.family == "gemm" and "volta" in row.candidate_name]
    assert renamed


def test_two_windows_of_one_run() -> None:
    one, other = digests("h100_transformer_two_windows")
    assert compare([one], [other]).verdict in (pb.Comparison.SAME, pb.Comparison.CANNOT_TELL)


@pytest.mark.parametrize("folder", ["v100_resnet50_workers4", "v100_dlrm_8ranks", "rtx5080_module_eager"])
def test_a_trace_with_itself(folder: str) -> None:
    found = compared(folder, folder)
    assert found.verdict == pb.Comparison.SAME
    assert (found.step_us.difference, found.step_us.low, found.step_us.high) == (0, 0, 0)
    for rows in (found.causes, found.kernels, found.operators):
        assert rows
        assert all(row.base_us == row.candidate_us for row in rows)
    assert not (found.findings.gone)
    assert not (found.findings.new)
    assert not (found.findings.changed)
    assert not made(found)


def test_kernels_per_step_of_a_host_that_runs_ahead() -> None:
    """When the recording of the graphed job begins, the GPU still works on three steps before it."""
    found = compared("rtx5080_without_cuda_graph", "rtx5080_with_cuda_graph")
    assert found.verdict == pb.Comparison.FASTER
    for row in found.kernels:
        assert row.candidate_count == round(row.candidate_count), row.name
    assert found.launches.candidate == 5
