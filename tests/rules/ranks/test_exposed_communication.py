from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Finding, Severity
from tb_gpudiag.rules.ranks.exposed_communication import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, facts_of, figures, finding, is_clear, one_step, severity

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def reduced(us: float, folder: Path) -> Facts:
    """Build a step that computes until 500 µs, with an all-reduce from 400 µs until `us` after that."""
    trace, main = one_step()
    main.op("c10d::allreduce_", at=STEP_AT + 20, us=15)
    main.launch("gemm", at=STEP_AT, us=5, runs_at=STEP_AT + 10, runs_us=390)
    main.launch(ALL_REDUCE, at=STEP_AT + 25, us=5, runs_at=400, runs_us=100 + us, stream=20)
    return facts_of(trace, folder)


@pytest.mark.parametrize(("collective_us", "fires"), [(600, True), (300, False)])
def test_on_a_cpu_it_finds_collectives_that_take_more_than_anything_else(
    collective_us: float, *, fires: bool, tmp_path: Path
) -> None:
    trace, main = one_step(devices=())
    main.op("aten::mm", at=STEP_AT, us=1_000 - collective_us)
    main.op("c10d::allreduce_", at=STEP_AT + 1_000 - collective_us, us=collective_us)
    facts = facts_of(trace, tmp_path)
    answer = RULE.check(facts)
    assert is_clear(answer) != fires
    if fires:
        found = finding(answer)
        assert found.cost_ns == 600_000
        assert found.places[0].operator == "c10d::allreduce_"
        assert find_verdict(facts).limiter == "communication"


def test_fires_on_the_exposed_part(tmp_path: Path) -> None:
    facts = reduced(200, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 200_000
    evidence = figures(found)
    assert evidence["Exposed communication"] == (
        duration(200_000),
        share_of(200_000, 1_000_000, "of the step window"),
    )
    assert evidence["Exposed share"] == (share_of(200, 300, "of the communication time"),)
    assert evidence["All-reduce"] == (
        number(1, "kernel"),
        duration(300_000),
        duration(200_000, "exposed"),
    )
    assert found.places[0].operator == "c10d::allreduce_"
    assert found.claims[0].total == 200_000


@pytest.mark.parametrize(("us", "expected"), [(290, Severity.WARNING), (310, Severity.ERROR)])
def test_is_an_error_from_30_percent(us: float, expected: Severity, tmp_path: Path) -> None:
    facts = reduced(us, tmp_path)
    assert severity(RULE, finding(RULE.check(facts)), facts) == expected


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(reduced(99, tmp_path)))


def test_does_not_count_claimed_time_again(tmp_path: Path) -> None:
    facts = reduced(200, tmp_path)
    (claim,) = finding(RULE.check(facts)).claims.values()
    half = Intervals(claim.start, claim.start + 150_000)
    assert is_clear(RULE.check(facts, {0: half}))


SEND_RECV = "ncclDevKernel_SendRecv(ncclDevComm*)"


def _exchanged(
    operator: str,
    folder: Path,
    *,
    kernel: str = SEND_RECV,
    annotation: str = "",
    training: bool = True,
    stream: int = 20,
) -> Finding:
    trace, main = one_step()
    if training:
        main.annotation("Optimizer.step#SGD.step", at=STEP_AT + 900, us=50)
    if annotation:
        main.annotation(annotation, at=STEP_AT + 15, us=30)
    main.op("record_param_comms", at=STEP_AT + 18, us=20)
    main.annotation(operator, at=STEP_AT + 20, us=15)
    main.launch("gemm", at=STEP_AT, us=5, runs_at=STEP_AT + 10, runs_us=390)
    main.launch(kernel, at=STEP_AT + 25, us=5, runs_at=400, runs_us=300, stream=stream)
    main.launch("gemm", at=STEP_AT + 40, us=5, runs_at=700, runs_us=400)
    return finding(RULE.check(facts_of(trace, folder)))


@pytest.mark.parametrize(
    ("operator", "kernel", "code"),
    [
        ("nccl:all_to_all", SEND_RECV, "TrainPipelineSparseDist"),
        ("nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "async_op=True"),
        ("nccl:_reduce_scatter_base", "ncclDevKernel_Generic(ncclDevComm*)", "async_op=True"),
        ("nccl:all_reduce", "ncclDevKernel_Generic(ncclDevComm*)", "no_sync"),
        ("nccl:send 0->1", SEND_RECV, "n_microbatches"),
        ("nccl:recv 1<-0", SEND_RECV, "n_microbatches"),
        ("nccl:broadcast", "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "broadcast_buffers=False"),
        ("model", SEND_RECV, "async_op=True"),  # the kernel's name alone decides nothing
        ("model", ALL_REDUCE, "no_sync"),
    ],
)
def test_the_fix_depends_on_the_collective(operator: str, kernel: str, code: str, tmp_path: Path) -> None:
    assert code in _exchanged(operator, tmp_path, kernel=kernel).fix.code


@pytest.mark.parametrize(
    ("caller", "code"),
    [
        ("FSDP::all_gather (layers.3)", "forward_prefetch"),
        ("FullyShardedDataParallel._pre_forward", "forward_prefetch"),
        ("Optimizer.step#DistAdam.step", "register_post_accumulate_grad_hook"),
        ("_c10d_functional::all_gather_into_tensor", "tensor-parallel-size"),
    ],
)
def test_the_fix_of_an_all_gather_depends_on_its_caller(caller: str, code: str, tmp_path: Path) -> None:
    assert code in _exchanged("nccl:_all_gather_base", tmp_path, annotation=caller).fix.code


@pytest.mark.parametrize(
    ("annotation", "option"),
    [("execute_context_0(0)_generation_1(1)", "enable_sp"), ("step[DECODE bs=1]", "--tp-size")],
)
def test_a_server_gets_fixes_of_serving(annotation: str, option: str, tmp_path: Path) -> None:
    kernel = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)"
    found = _exchanged("model", tmp_path, kernel=kernel, annotation=annotation, training=False)
    assert option in found.fix.code
    assert "--disable-custom-all-reduce" in found.fix.code
    assert "sequence parallelism" in found.fix.text


def _equal(lengths_us: list[float], folder: Path, idle_us: float | None = None, **said: Any) -> Finding:
    """All-reduces of one size, one in each step, while nothing computes. Steps take 1 ms, or idle for so
    long."""
    return finding(RULE.check(_equal_facts(lengths_us, folder, idle_us, **said)))


def _equal_facts(lengths_us: list[float], folder: Path, idle_us: float | None = None, **said: Any) -> Facts:
    trace = TraceBuilder()
    main = trace.thread()
    at = STEP_AT
    for step, us in enumerate(lengths_us):
        step_us = 1_000 if idle_us is None else 310 + us + idle_us
        main.step(step, at=at, us=step_us)
        main.launch("gemm", at=at, us=5, runs_at=at + 10, runs_us=300)
        main.op("record_param_comms", at=at + 18, us=20, **(said or {"more": MESSAGE}))
        main.launch(ALL_REDUCE, at=at + 25, us=5, runs_at=at + 310, runs_us=us, stream=20)
        at += step_us
    return facts_of(trace, folder)


MESSAGE = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float"}


def test_equal_messages_of_different_length_are_waiting(tmp_path: Path) -> None:
    found = _equal([50, 600, 600, 600], tmp_path)
    assert "gpudiag job" in found.fix.text
    assert figures(found)["Longer than the shortest equal message"][0] == duration(3 * 550_000)


@pytest.mark.parametrize(("lengths_us", "waits"), [([50, 600, 600, 600], True), ([600] * 4, False)])
def test_the_verdict_says_that_a_rank_probably_waits(
    lengths_us: list[float], *, waits: bool, tmp_path: Path
) -> None:
    facts = _equal_facts(lengths_us, tmp_path)
    verdict = find_verdict(facts, run_rules(facts, [RULE]).findings)
    assert verdict.limiter == "communication"
    assert ("probably waiting for another rank" in verdict.sentence) is waits
    assert ("limits this job" in verdict.sentence) is not waits


def test_before_torch_2_2_shapes_tell_which_messages_are_equal(tmp_path: Path) -> None:
    found = _equal([50, 600, 600, 600], tmp_path, shapes=[[[1024]], []])
    assert figures(found)["Longer than the shortest equal message"][0] == duration(3 * 550_000)


@pytest.mark.parametrize(("usual_us", "longest_us", "waits"), [(15, 680, True), (200, 600, False)])
def test_without_sizes_far_longer_collectives_are_probably_waiting(
    usual_us: float, longest_us: float, *, waits: bool, tmp_path: Path
) -> None:
    found = _equal([usual_us] * 5 + [longest_us], tmp_path, idle_us=10, shapes=None)
    assert ("gpudiag job" in found.fix.text) is waits
    assert ("In collectives far longer than usual" in figures(found)) is waits


def test_equal_messages_of_equal_length_are_transfer(tmp_path: Path) -> None:
    assert "gpudiag job" not in _equal([500, 510, 505, 500], tmp_path).fix.text


def test_names_the_annotation_around_the_launch(tmp_path: Path) -> None:
    found = _exchanged("nccl:all_to_all", tmp_path, annotation="## sparse_data_dist ##")
    assert "launched in “## sparse_data_dist ##”" in found.summary
    assert (found.places[0].operator, found.places[0].time_ns) == ("## sparse_data_dist ##", 200_000)


def test_without_an_annotation_the_operator_is_the_place(tmp_path: Path) -> None:
    found = _exchanged("nccl:all_to_all", tmp_path)
    assert "launched in" not in found.summary
    assert found.places[0].operator == "record_param_comms"


def test_inference_has_no_gradients_to_reduce(tmp_path: Path) -> None:
    found = _exchanged("nccl:all_reduce", tmp_path, kernel=ALL_REDUCE, training=False)
    assert "tensor-parallel" in found.fix.code
    assert "DistributedDataParallel" not in found.fix.code


def test_data_parallel_is_replaced_by_processes(tmp_path: Path) -> None:
    trace, main = one_step()
    main.op("ReduceAddCoalesced", at=STEP_AT + 20, us=15)
    main.launch("gemm", at=STEP_AT, us=5, runs_at=STEP_AT + 10, runs_us=390)
    main.launch("ncclKernel_Reduce_RING_LL_Sum_float", at=STEP_AT + 25, us=5, runs_at=500, runs_us=300)
    fix = finding(RULE.check(facts_of(trace, tmp_path))).fix
    assert "DistributedDataParallel" in fix.text
    assert "LOCAL_RANK" in fix.code


@pytest.mark.parametrize(("idle_us", "late"), [(300, False), (450, True)])
def test_late_hosts_are_fixed_before_the_collectives(idle_us: float, late: bool, tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.annotation("Optimizer.step#SGD.step", at=1, us=9)
    main.op("c10d::allreduce_", at=20, us=15)
    main.launch(ALL_REDUCE, at=25, us=5, runs_at=35, runs_us=400, stream=20)
    main.launch("gemm", at=435 + idle_us, us=5, runs_at=440 + idle_us, runs_us=560 - idle_us)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("hosts faster first" in found.fix.text) == late
    assert ("bucket_cap_mb" in found.fix.code) != late


def _gathered(mark: str, folder: Path, *, limited: bool = False) -> Finding:
    """FSDP gathers each of three units only when it is needed, and nothing else runs meanwhile."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=3_000)
    for unit in range(3):
        at = 50 + unit * 900
        main.annotation("FullyShardedDataParallel._pre_forward", at=at - 45, us=95)
        if limited:
            main.annotation("FullyShardedDataParallel.rate_limiter", at=at - 850, us=820)
        main.annotation(mark.format(unit), at=at - 12, us=40)
        main.annotation("nccl:_all_gather_base", at=at - 8, us=20)
        main.launch("ncclDevKernel_AllGather_RING_LL", at=at, us=5, runs_at=at + 10, runs_us=400, stream=20)
        main.launch("gemm", at=at + 60, us=5, runs_at=at + 411, runs_us=440)
    return finding(RULE.check(facts_of(trace, folder)))


def test_an_all_gather_that_is_not_prefetched_is_named_with_its_fix(tmp_path: Path) -> None:
    found = _gathered("FSDP::all_gather (layers.{})", tmp_path)
    assert found.fix.code.startswith("# FSDP2 (fully_shard): name the units to gather")
    assert "Most exposed: the all-gather of “layers.0” (FSDP)" in found.summary
    assert found.summary.endswith("not while the unit before it computed.")
    assert "Not prefetched" in figures(found)


def test_the_rate_limiter_is_told_apart(tmp_path: Path) -> None:
    found = _gathered("FullyShardedDataParallel._pre_forward", tmp_path, limited=True)
    assert "limit_all_gathers=False" in found.fix.code


@pytest.mark.parametrize(("training", "code"), [(True, "async_op=True"), (False, "tensor-parallel-size")])
def test_layers_without_gradients_need_their_stream(training: bool, code: str, tmp_path: Path) -> None:
    found = _exchanged("nccl:all_reduce", tmp_path, kernel=ALL_REDUCE, training=training, stream=7)
    assert code in found.fix.code


@pytest.mark.parametrize("in_graph", [True, False])
def test_collectives_of_a_replayed_graph_are_not_called_again(in_graph: bool, tmp_path: Path) -> None:
    """Nobody passes async_op to them: they were captured on the stream that computes."""
    trace, main = one_step()
    main.annotation("Optimizer.step#SGD.step", at=STEP_AT + 900, us=50)
    kernels = [("gemm", 210.0, 190.0), (ALL_REDUCE, 400.0, 300.0), ("gemm", 700.0, 390.0)]
    if in_graph:
        main.graph_launch(kernels, at=STEP_AT, us=5)
    else:
        for number, (name, runs_at, us) in enumerate(kernels):
            main.launch(name, at=STEP_AT + 10 * number, us=5, runs_at=runs_at, runs_us=us)
    code = finding(RULE.check(facts_of(trace, tmp_path))).fix.code
    assert ("async_op=True" in code) != in_graph
