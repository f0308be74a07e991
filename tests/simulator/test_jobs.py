"""Invariants of every simulated job of many ranks, and what its files say."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.builder import EPOCH_NS
from tests.facts.invariants import assert_invariants
from tests.simulator.jobs import DistributedJob, simulate_job
from tests.simulator.jobs.links import LOCAL_JITTER_NS, REMOTE_JITTER_NS
from tests.simulator.jobs.testing import JOBS, rank_facts, simulated_job
from tests.some_values import slow

TWO_HOSTS = JOBS["ddp on two hosts"]


@pytest.fixture(params=["ddp", *slow(*(name for name in JOBS if name != "ddp"))])
def job(request: pytest.FixtureRequest) -> DistributedJob:
    return JOBS[request.param]


@pytest.mark.slow
def test_waiting_and_transfer_are_the_kernel_and_the_last_rank_does_not_wait(job: DistributedJob) -> None:
    collectives = simulated_job(job).truth.collectives
    assert len(collectives) >= job.steps
    for one in collectives:
        assert one.waiting_ns(one.last_rank) == 0
        for rank, start in one.arrival_ns.items():
            assert one.waiting_ns(rank) >= 0
            assert one.waiting_ns(rank) + one.transferring_ns(rank) == one.end_ns[rank] - start


def test_a_collective_ends_on_all_ranks_within_the_jitter(job: DistributedJob) -> None:
    for one in simulated_job(job).truth.collectives:
        hosts = {job.host_of(rank) for rank in one.end_ns}
        jitter = LOCAL_JITTER_NS if len(hosts) == 1 else REMOTE_JITTER_NS
        assert max(one.end_ns.values()) - min(one.end_ns.values()) <= 2 * jitter


def test_traces_hold_the_collectives_of_the_truth_in_local_time(job: DistributedJob) -> None:
    """Every end in every trace is the true one plus the offset of the host's clock at that instant."""
    run = simulated_job(job)
    for rank, recording in enumerate(run.recordings):
        clock = run.truth.clocks[job.host_of(rank)]
        own = [one for one in run.truth.collectives if rank in one.arrival_ns]
        expected = sorted(
            (clock.local_ns(one.arrival_ns[rank]), clock.local_ns(one.end_ns[rank])) for one in own
        )
        found = [(w.start_ns, w.end_ns) for w in recording.gpu if w.kind == "kernel" and "nccl" in w.name]
        assert sorted(found) == expected


def test_no_work_begins_before_its_launch_and_no_stream_runs_two_things(job: DistributedJob) -> None:
    for recording in simulated_job(job).recordings:
        called = {span.correlation: span.start_ns for span in recording.host if span.correlation is not None}
        work = [w for w in recording.gpu if w.kind != "annotation"]
        assert all(w.start_ns > called[w.correlation or 0] for w in work)
        ordered = pairwise(sorted((w.stream, w.start_ns, w.end_ns) for w in work))
        assert all(a[0] != b[0] or a[2] <= b[1] for a, b in ordered)


def test_each_rank_waits_little_in_a_healthy_job_without_a_pipeline(job: DistributedJob) -> None:
    truth = simulated_job(job).truth
    assert truth.healthy
    for rank in truth.by_rank.values():
        assert rank.waiting_ns < 0.05 * truth.window_ns or job.parallelism == "pp"
        assert rank.busy_ns > 0.9 * truth.window_ns


@pytest.mark.slow
def test_a_pipeline_has_its_bubble() -> None:
    """With 1F1B, (stages - 1) / microbatches of the computing time, on the stages together."""
    job = JOBS["pp"]
    run = simulated_job(job)
    for rank in range(job.ranks):
        kernels = [w for w in run.recordings[rank].gpu if w.kind == "kernel" and "nccl" not in w.name]
        computing = sum(w.end_ns - w.start_ns for w in kernels) / job.steps
        bubble = run.truth.step_ns - computing
        assert bubble > (job.degree - 1) / job.microbatches * computing
    one = [c for c in run.truth.collectives if c.kind == "send"]
    assert len(one) == job.steps * 2 * (job.degree - 1) * job.microbatches


def test_every_rank_calls_the_same_collectives_of_a_group_in_the_same_order(job: DistributedJob) -> None:
    calls: dict[str, set[tuple[tuple[int, str], ...]]] = defaultdict(set)
    for rank, recording in enumerate(simulated_job(job).recordings):
        own = defaultdict(list)
        for w in recording.gpu:
            if w.args.get("Collective name", "send") not in ("send", "recv"):
                own[w.args["Process Group Name"]].append((w.args["Seq"], w.args["Collective name"]))
        for group, sequence in own.items():
            assert [number for number, _ in sequence] == list(range(1, len(sequence) + 1))
            assert rank in simulated_job(job).truth.groups[group]
            calls[group].add(tuple(sequence))
    assert all(len(sequences) == 1 for sequences in calls.values())


def test_a_send_names_its_peer_and_both_sides_agree() -> None:
    run = simulated_job(JOBS["pp"])
    sizes: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for rank, recording in enumerate(run.recordings):
        for w in recording.gpu:
            if "Dst Rank" in w.args:
                sizes["send", rank, w.args["Dst Rank"]].append(w.args["In msg nelems"])
            if "Src Rank" in w.args:
                sizes["recv", w.args["Src Rank"], rank].append(w.args["Out msg nelems"])
    assert sizes
    for (_, source, target), sent in sizes.items():
        assert sizes["recv", source, target] == sizes["send", source, target] == sent


def test_tokens_of_an_all_to_all_arrive_where_they_were_sent() -> None:
    run = simulated_job(JOBS["ep"])
    splits = [
        [
            (json.loads(w.args["In split size"]), json.loads(w.args["Out split size"]))
            for w in recording.gpu
            if w.args.get("Collective name") == "all_to_allv"
        ]
        for recording in run.recordings[:2]
    ]
    for first, second in zip(*splits, strict=True):
        assert first[0][1] == second[1][0]
        assert second[0][0] == first[1][1]


@pytest.mark.slow
def test_the_diagnosis_reads_each_rank(job: DistributedJob) -> None:
    run = simulated_job(job)
    for rank in (0, job.ranks - 1):
        facts = rank_facts(job, rank)
        assert_invariants(facts)
        assert facts.trace.metadata.simulated
        assert facts.trace.metadata.distributed["rank"] == rank
        assert len(facts.recorded_steps) == job.steps
        kernels = [w for w in run.recordings[rank].gpu if w.kind != "annotation"]
        assert len(facts.work.event) == len(kernels)
        assert facts.device is not None
        assert facts.device.id == rank % job.ranks_per_host


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes_and_another_seed_does_not() -> None:
    first = simulate_job(TWO_HOSTS).bytes(3)
    assert simulated_job(TWO_HOSTS).bytes(3) == first
    assert simulated_job(TWO_HOSTS, 1).bytes(3) != first


@pytest.mark.slow
def test_ranks_of_a_host_share_a_clock_and_hosts_differ() -> None:
    run = simulated_job(TWO_HOSTS)
    clocks = run.truth.clocks
    assert set(clocks) == {"node0", "node1"}
    assert abs(clocks["node0"].offset_ns - clocks["node1"].offset_ns) > 100_000
    for rank, recording in enumerate(run.recordings):
        clock = clocks[TWO_HOSTS.host_of(rank)]
        true_start = run.programs[rank].rank.recording.start_ns
        assert recording.start_ns == true_start + clock.offset_at(true_start)


def test_a_drifting_clock_gains_its_drift() -> None:
    (clock, *_) = simulated_job(replace(TWO_HOSTS, drift_ppm=80)).truth.clocks.values()
    assert clock.offset_at(10**9) - clock.offset_ns == round(clock.drift_ppm * 1_000)


@pytest.mark.slow
def test_files_are_named_and_filled_as_torch_does(tmp_path: Path) -> None:
    run = simulated_job(TWO_HOSTS)
    paths = run.write(tmp_path)
    assert len({path.name for path in paths}) == 4
    pid = run.recordings[3].pid
    assert paths[3].name.startswith(f"node1_{pid}.{EPOCH_NS // 10**15}")
    content = json.loads(paths[3].read_bytes())
    info = content["distributedInfo"]
    assert (info["backend"], info["rank"], info["world_size"], info["pg_count"]) == ("nccl", 3, 4, 1)
    assert info["pg_config"][0]["ranks"] == list(range(4))
    assert content["hostname"] == "node1"
    kernels = [e for e in content["traceEvents"] if e.get("name", "").startswith("ncclDevKernel_AllReduce")]
    assert len(kernels) == TWO_HOSTS.steps * TWO_HOSTS.layers
    assert [e["args"]["Seq"] for e in kernels] == list(range(1, len(kernels) + 1))
    assert kernels[0]["args"]["Process Group Ranks"] == "[0, 1, 2, 3]"


@pytest.mark.slow
def test_older_traces_lack_sequence_numbers_or_groups() -> None:
    old = simulated_job(replace(JOBS["ddp"], with_groups=False))
    assert b"Process Group" not in old.bytes(0)
    assert b"pg_config" not in old.bytes(0)
    middle = simulated_job(replace(JOBS["ddp"], with_sequence=False))
    assert b'"Seq"' not in middle.bytes(0)
    assert b"Process Group Name" in middle.bytes(0)
