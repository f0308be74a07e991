"""Verdicts of comparisons, and accounts that add up to the difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import MOST_ROWS, compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.jobs.compare.conclusion import FEWEST_STEPS, SAME_AT_MOST
from tb_gpudiag.jobs.compare.noise import SAME_WITHIN
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.text import document_text
from tests.digest.made import CAUSES, digest, parts
from tests.jobs.compare.sides import finding, made, trace
from tests.with_each import with_each

NOISE = [0, 3, -2, 1, -4, 2, -1, 4]
"""Noise of the steps in µs."""


def around(us: int, noise: float = 1.0) -> list[int]:
    return [us + round(noise * each) for each in NOISE]


def compared(base: Digest, candidate: Digest) -> pb.Comparison:
    return compare([base], [candidate])


def test_a_faster_candidate() -> None:
    found = compared(trace(around(1000), "a", computing=0.5), trace(around(600), "b", computing=0.9))
    assert found.verdict == pb.Comparison.FASTER
    assert found.step_us.base == pytest.approx(1000.5)
    assert found.step_us.difference == pytest.approx(-400)
    assert -410 < found.step_us.low <= -400 <= found.step_us.high < -390
    assert "Faster by 40.0%: 601 µs per step instead of 1.00 ms" in found.sentence.replace("\u00a0", " ")
    assert "440 µs less data loading" in found.sentence.replace("\u00a0", " ")
    assert (found.base, found.candidate) == ("a", "b")


def test_a_slower_candidate() -> None:
    found = compared(trace(around(600), "a"), trace(around(1000), "b"))
    assert found.verdict == pb.Comparison.SLOWER
    assert "per step instead of 601\u00a0µs (medians of 8 and 8 steps; 95% confidence: +" in found.sentence
    assert "400 µs more computing" in found.sentence.replace("\u00a0", " ")


def test_a_small_difference_is_none() -> None:
    """Runs differ by that much from one to the next, however steady the steps of each are."""
    below, above = round(1000 * SAME_WITHIN) - 5, round(1000 * SAME_WITHIN) + 5
    same = compared(trace(around(1000, 0), "a"), trace(around(1000 + below, 0), "b"))
    assert same.verdict == pb.Comparison.SAME
    assert same.same_within_share == pytest.approx(below / 1000)
    assert (
        compared(trace(around(1000, 0), "a"), trace(around(1000 + above, 0), "b")).verdict
        == pb.Comparison.SLOWER
    )


def test_noisy_steps_do_not_tell() -> None:
    wide = 600 * SAME_AT_MOST
    found = compared(trace(around(1000, wide), "a"), trace(around(1010, wide), "b"))
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert "vary too much" in found.sentence


@pytest.mark.slow
def test_two_halves_of_noise_are_never_different() -> None:
    generator = np.random.default_rng(1)
    verdicts = []
    for _ in range(100):
        one, other = (generator.normal(1000, 40, 8).astype(int).tolist() for _ in range(2))
        verdicts.append(compared(trace(one, "a"), trace(other, "b")).verdict)
    assert verdicts.count(pb.Comparison.FASTER) + verdicts.count(pb.Comparison.SLOWER) <= 6


def test_some_slow_steps_are_seen_in_the_mean() -> None:
    """The loader stalls in every fourth step: the median does not change, and the job is slower."""
    stalls = [1000, 1001, 999, 2000] * 10
    found = compared(trace([1000, 1001, 999, 1000] * 10, "a"), trace(stalls, "b"))
    assert found.verdict == pb.Comparison.SLOWER
    assert abs(found.step_us.difference) < 1
    said = found.sentence.replace("\u00a0", " ")
    assert "Slower on average by 25.0%: 1.25 ms per step instead of 1 ms (mean; 99%" in said
    assert "Some steps are slow: the medians are 1 ms and 1" in said


@pytest.mark.parametrize("slow", [1, 2])
def test_one_or_two_slow_steps_do_not_tell(slow: int) -> None:
    found = compared(trace([1000] * 8, "a"), trace([1000] * (8 - slow) + [2000] * slow, "b"))
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert "some steps are slow" in found.sentence or "the steps vary too much" in found.sentence
    assert " longer: " in found.sentence


def test_a_shorter_median_and_a_longer_mean_do_not_tell() -> None:
    found = compared(trace([1000] * 8, "a"), trace([900] * 14 + [3000] * 2, "b"))
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert "the median step is shorter and the mean step longer" in found.sentence


@pytest.mark.parametrize(("steps", "tells"), [(FEWEST_STEPS - 1, False), (FEWEST_STEPS, True)])
def test_too_few_steps_do_not_tell(steps: int, tells: bool) -> None:
    found = compared(trace(around(1000)[:steps], "a"), trace(around(600), "b"))
    assert (found.verdict == pb.Comparison.FASTER) is tells
    assert ("the base has only 4 steady steps; 5 are needed" in found.sentence) is not tells


@with_each(
    ("base", "candidate", "why"),
    [
        ({}, {"device_name": "NVIDIA H100"}, "different GPUs (“NVIDIA A100-SXM4-80GB” and “NVIDIA H100”)"),
        ({"simulated": True}, {}, "the base is simulated and the candidate was recorded"),
        ({}, {"device_name": "", "devices": 0}, "the base uses a GPU and the candidate does not"),
        ({"world_size": 8}, {"world_size": 2}, "the base has 8 ranks and the candidate 2"),
        ({"steps_basis": "none"}, {}, "the base has no steps"),
        ({"steps_basis": "inferred"}, {}, "recorded on one side and inferred on the other"),
        ({}, {"kind": "memory_timeline"}, "the candidate is a memory timeline and not a trace"),
    ],
)
def test_what_cannot_be_compared(base: dict[str, Any], candidate: dict[str, Any], why: str) -> None:
    promise = [finding("GD101", 100, saves_us=(10, 20))]
    one = trace(around(1000), "a", findings=promise, **base)
    found = compared(one, trace(around(600), "b", **candidate))
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert why in found.sentence
    assert "601\u00a0µs per step instead of 1.00\u00a0ms" in found.sentence
    assert any(why[1:] in note for note in found.notes)
    if "steps_basis" not in base:
        assert [row.became for row in found.verified] == [pb.Verified.UNKNOWN]
        assert not made(found)


def kernels(operator_shapes: dict[str, str], time_ns: int = 1000) -> list[dict[str, Any]]:
    return [
        {
            "name": f"kernel_{operator}",
            "operator": operator,
            "path": operator,
            "shapes": shapes,
            "count": 1,
            "time_ns": time_ns,
        }
        for operator, shapes in operator_shapes.items()
    ]


def test_another_batch_size_cannot_be_compared() -> None:
    one = {"conv": "[[32,3,224,224],[64,3,7,7]]", "mm": "[[32,512],[512,10]]"}
    other = {"conv": "[[64,3,224,224],[64,3,7,7]]", "mm": "[[64,512],[512,10]]"}
    found = compared(
        trace(around(600), "a", kernels=kernels(one)), trace(around(1000), "b", kernels=kernels(other))
    )
    assert found.verdict == pb.Comparison.CANNOT_TELL
    assert "the inputs are 2 times as large (“conv”: [[32,3,224,224],[64,3,7,7]] and [[64,3" in found.sentence


def test_other_shapes_cannot_be_compared() -> None:
    one = {"conv": "[[32,3,224,224]]", "mm": "[[32,512],[512,10]]"}
    other = {"conv": "[[32,8,31,224]]", "mm": "[[1,2,3]]"}
    found = compared(
        trace(around(600), "a", kernels=kernels(one, 2_000_000)),
        trace(around(1000), "b", kernels=kernels(other, 3_000_000)),
    )
    assert "100% of the GPU time is in operators with other input shapes" in found.sentence


def test_a_difference_that_other_work_does_not_explain_is_told() -> None:
    """Recompilation is gone, and batches have another size since then."""
    one = {"conv": "[[32,3,224,224]]", "mm": "[[32,512],[512,10]]"}
    other = {"conv": "[[32,8,31,224]]", "mm": "[[1,2,3]]"}
    found = compared(
        trace(around(60_000), "a", kernels=kernels(one, 2_000_000)),
        trace(around(1000), "b", kernels=kernels(other, 3_000_000)),
    )
    assert found.verdict == pb.Comparison.FASTER
    assert any("operators with other input shapes" in note for note in found.notes)


def test_some_other_shapes_are_noted() -> None:
    one = {"conv": "[[32,3,224,224]]", "mm": "[[32,512],[512,50257]]", "add": "[[4]]"}
    other = {**one, "mm": "[[32,512],[512,50304]]"}
    found = compared(
        trace(around(1000), "a", kernels=kernels(one)), trace(around(600), "b", kernels=kernels(other))
    )
    assert found.verdict == pb.Comparison.FASTER
    assert any(
        "33.3% of the GPU time is in operators with other input shapes" in note for note in found.notes
    )


def test_operators_that_a_graph_hides_do_the_same_work() -> None:
    one = {"conv": "[[32,3,224,224]]", "mm": "[[32,512],[512,10]]"}
    found = compared(
        trace(around(1000), "a", kernels=kernels(one)),
        trace(around(600), "b", kernels=kernels({"mm": one["mm"]})),
    )
    assert found.verdict == pb.Comparison.FASTER


def test_a_trace_with_itself() -> None:
    noisy = trace(around(1000, 50), "a", computing=0.7, kernels=kernels({"mm": "[[1]]"}))
    found = compared(noisy, noisy)
    assert (found.verdict, found.sentence) == (pb.Comparison.SAME, "Both sides are the same recording.")
    assert (found.step_us.difference, found.step_us.low, found.step_us.high) == (0, 0, 0)
    assert not found.notes
    for rows in (found.causes, found.kernels, found.operators):
        assert all(row.base_us == row.candidate_us for row in rows)


PART_NS = st.integers(0, 10**10)
STEP = st.fixed_dictionaries(
    {
        "computing_ns": PART_NS,
        "copying_ns": PART_NS,
        "communicating_ns": PART_NS,
        "idle_ns": st.lists(PART_NS, min_size=len(CAUSES), max_size=len(CAUSES)),
        "rest": st.integers(-1000, 1000),
        "steady": st.booleans(),
    }
)


def stepped(rows: list[dict[str, Any]], id: str, rank: int = 0) -> Digest:
    steps, at = [], 0
    for row in rows:
        length = sum(row[f"{part}_ns"] for part in ("computing", "copying", "communicating"))
        length += sum(row["idle_ns"]) + row["rest"]
        steps.append({**row, "start_ns": at, "end_ns": at + length})
        at += length
    return digest(steps=steps, id=id, rank=rank)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    base=st.lists(st.lists(STEP, max_size=4), min_size=1, max_size=3),
    candidate=st.lists(st.lists(STEP, max_size=4), min_size=1, max_size=3),
)
def test_parts_add_up_to_the_difference_of_the_mean_step(
    base: list[list[dict[str, Any]]], candidate: list[list[dict[str, Any]]]
) -> None:
    sides = [
        [stepped(rows, f"{name}{rank}", rank) for rank, rows in enumerate(ranks)]
        for name, ranks in (("a", base), ("b", candidate))
    ]
    found = compare(*sides)
    for side in ("base", "candidate"):
        total = sum(getattr(row, f"{side}_us") for row in found.causes)
        assert total == pytest.approx(getattr(found.mean_step_us, side), rel=1e-12, abs=1e-9)
    moved = sum(row.candidate_us - row.base_us for row in found.causes)
    assert moved == pytest.approx(found.mean_step_us.difference, rel=1e-9, abs=1e-4)


@pytest.mark.slow
@settings(max_examples=30)
@given(durations=st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_the_other_way_round_is_the_opposite(durations: list[int]) -> None:
    one, other = trace(durations, "a"), trace(around(1000), "b")
    forward, back = compared(one, other), compared(other, one)
    assert forward.step_us.difference == -back.step_us.difference
    # Thresholds are shares of the base, so one of them may be just under its threshold.
    assert (forward.verdict, back.verdict) not in {
        (pb.Comparison.FASTER, pb.Comparison.FASTER),
        (pb.Comparison.SLOWER, pb.Comparison.SLOWER),
    }


def test_the_same_input_has_the_same_output() -> None:
    def run() -> bytes:
        return compared(trace(around(1000, 9), "a"), trace(around(900, 9), "b")).SerializeToString()

    assert run() == run()


def test_a_cpu_job_is_accounted_for_by_its_main_thread() -> None:
    def cpu(us: int, id: str) -> Digest:
        rows = [
            {"name": str(i), "start_ns": i * us, "end_ns": (i + 1) * us, "steady": True}
            | {"host_ns": parts(input=us // 2, dispatch=us // 4)}
            for i in range(6)
        ]
        operators = [{"name": "aten::mm", "family": "other", "count": 6, "time_ns": us}]
        return digest(steps=rows, kernels=operators, id=id, device_name="", devices=0)

    found = compared(cpu(4000, "a"), cpu(2000, "b"))
    assert {pb.CauseTime.Cause.Name(row.cause): (row.base_us, row.candidate_us) for row in found.causes} == {
        "input": (2, 1),
        "computing": (1, 0.5),
        "other": (1, 0.5),
    }


def test_jobs_are_compared_by_the_mean_of_their_ranks() -> None:
    def job(of_rank_1: int, id: str) -> list[Digest]:
        return [
            trace(around(1000), f"{id}0", world_size=2),
            trace(around(of_rank_1), f"{id}1", rank=1, world_size=2),
        ]

    found = compare(job(2000, "a"), job(1000, "b"))
    assert found.step_us.base == pytest.approx(1500.5)
    assert found.mean_step_us.difference == pytest.approx(-500)
    assert any("Rank 1 changed most: -1\u00a0ms per step" in note for note in found.notes)


def test_steps_that_some_rank_lacks_are_left_out() -> None:
    one, other = trace(around(1000), "a0"), trace(around(1000)[:6], "a1", rank=1)
    found = compare([one, other], [one, other])
    assert found.step_us.base_steps == 6


def test_missing_ranks_are_noted() -> None:
    base = [trace(around(1000), "a0", world_size=2), trace(around(1000), "a1", rank=1, world_size=2)]
    found = compare(base, [trace(around(1000), "b0", world_size=2)])
    assert "The base has traces of 2 ranks, the candidate of 1." in found.notes


def test_more_rows_than_are_shown_are_summed() -> None:
    many = [{"name": f"kernel_{i}", "path": f"op_{i}", "count": 8, "time_ns": 8 * i} for i in range(500)]
    found = compared(trace(around(1000), "a", kernels=many), trace(around(1000), "b"))
    assert len(found.kernels) == MOST_ROWS
    assert found.kernels[-1].name == "(other)"
    assert sum(row.base_us for row in found.kernels) == pytest.approx(sum(range(500)) * 1e-3)


def test_renamed_kernels_have_both_names() -> None:
    base = [{"name": "sgemm", "family": "gemm", "path": "mm", "count": 8, "time_ns": 8000}]
    candidate = [{"name": "hgemm", "family": "gemm", "path": "mm", "count": 8, "time_ns": 4000}]
    found = compared(trace(around(1000), "a", kernels=base), trace(around(1000), "b", kernels=candidate))
    (row,) = found.kernels
    assert (row.name, row.candidate_name, row.path, row.family) == ("sgemm", "hgemm", "mm", "gemm")
    assert (row.base_us, row.candidate_us, row.base_count) == (1, 0.5, 1)


def test_launches_and_operators_per_step() -> None:
    rows = [
        {"operator": "aten::mm", "path": "aten::mm", "count": 16, "host_ns": 80_000, "launches": 24},
        {"operator": "aten::add", "path": "aten::add", "count": 8, "host_ns": 8_000, "launches": 8},
    ]
    found = compared(trace(around(1000), "a", operators=rows), trace(around(1000), "b", operators=rows[:1]))
    assert (found.launches.base, found.launches.candidate) == (4, 3)
    by_name = {row.name: (row.base_us, row.candidate_us, row.base_count) for row in found.operators}
    assert by_name == {"aten::mm": (10, 10, 2), "aten::add": (1, 0, 1)}


BF16 = "989 TFLOP/s (BF16)"


def test_the_mfu_of_both_sides_is_their_mean() -> None:
    base = [trace(around(1000), "a", mfu=0.2, mfu_of=BF16), trace(around(1000), "b", mfu=0.4, mfu_of=BF16)]
    found = compare(base, [trace(around(1000), "c", mfu=0.5, mfu_of="494 TFLOP/s (TF32)")])
    assert found.mfu.base == pytest.approx(0.3)
    assert found.mfu.candidate == 0.5
    assert (found.mfu.base_of, found.mfu.candidate_of) == (BF16, "494 TFLOP/s (TF32)")
    words = document_text(comparison_document(found))
    assert "MFU, of 989 TFLOP/s (BF16) → 494 TFLOP/s (TF32)  30.0%" in words
    assert "+20.0 points" in words


@with_each("others", [[], [{"mfu": 0.4, "mfu_of": "67 TFLOP/s (FP32)"}], [{"mfu": 0.0, "mfu_of": ""}]])
def test_there_is_no_mfu_unless_all_recordings_have_one_of_the_same_peak(
    others: list[dict[str, Any]],
) -> None:
    known = trace(around(1000), "a", mfu=0.2, mfu_of=BF16)
    sides = [known, *(trace(around(1000), "b", **about) for about in others)]
    found = compare(sides, [known]) if others else compare([known], [trace(around(1000), "c")])
    assert not found.HasField("mfu")


def test_sides_of_different_recorders_are_noted() -> None:
    torch, nsys = trace([1000] * 8, "a"), trace([1000] * 8, "b", recorder="nsys")
    said = "torch.profiler recorded the base, Nsight Systems the candidate: they cost different host time."
    assert said in compare([torch], [nsys]).notes
    assert not [note for note in compare([nsys], [nsys]).notes if "host time" in note]
