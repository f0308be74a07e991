"""Why collectives are exposed: one tiny trace for each reason, and one just beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.exposure_reasons import ExposureReason
from tests.builder import TraceBuilder
from tests.builder.story import HostThread
from tests.rules.stage import facts_of

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)"
STEP_US = 10_000


class _Job:
    """One step, 0 to 10 ms. Launches take 5 us; what they launch is put where the test says."""

    def __init__(self) -> None:
        self.trace = TraceBuilder()
        self.main: HostThread = self.trace.thread()
        self.main.step(0, at=0, us=STEP_US)

    def computes(self, launched: float, runs: float, us: float) -> None:
        self.main.launch("gemm", at=launched, us=5, runs_at=runs, runs_us=us)

    def sends(
        self,
        launched: float,
        runs: float,
        us: float,
        *,
        kernel: str = GATHER,
        stream: int = 20,
        mark: str = "",
    ) -> None:
        if mark:
            self.main.annotation(mark, at=launched - 10, us=30)
        self.main.op("record_param_comms", at=launched - 2, us=10)
        self.main.launch(kernel, at=launched, us=5, runs_at=runs, runs_us=us, stream=stream)

    def facts(self, folder: Path) -> Facts:
        return facts_of(self.trace, folder)

    def reasons(self, folder: Path) -> list[str]:
        return [ExposureReason(why).name.lower() for why in self.facts(folder).exposure.why]


def test_hidden(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 2_000)
    job.sends(200, 220, 500)
    found = job.facts(tmp_path).exposure
    assert found.exposed_ns.tolist() == [0]
    assert found.why.tolist() == [ExposureReason.HIDDEN]


@pytest.mark.parametrize("mark", ["FSDP::pre_forward (layers.1)", "FullyShardedDataParallel._pre_forward"])
def test_not_prefetched(mark: str, tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.main.annotation(mark, at=690, us=40)
    job.sends(710, 722, 300)
    job.computes(800, 1_023, 400)
    assert job.reasons(tmp_path) == ["not_prefetched"]


def test_prefetched_and_longer_than_the_computing(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.main.annotation("FSDP::forward_prefetch for layers.1", at=190, us=40)
    job.sends(200, 212, 800)
    job.computes(400, 1_013, 400)
    found = job.facts(tmp_path).exposure
    assert found.exposed_ns.tolist() == [1_012_000 - 620_000]
    assert found.why.tolist() == [ExposureReason.TOO_LONG]


def test_a_prefetch_inside_of_a_hook_is_a_prefetch(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.main.annotation("FullyShardedDataParallel._pre_backward_hook", at=650, us=200)
    job.main.annotation("FullyShardedDataParallel._pre_backward_prefetch", at=690, us=60)
    job.sends(710, 722, 300)
    job.computes(800, 1_023, 400)
    assert job.reasons(tmp_path) == ["unknown"]  # no equal messages: it may have waited for a rank


def _equal(job: _Job) -> None:
    """Two short ones of the same size, so that the usual time is known."""
    for at in (5_000, 6_000):
        job.computes(at, at + 20, 800)
        job.main.op("record_param_comms", at=at + 99, us=10, more=_SIZE)
        job.main.launch(GATHER, at=at + 100, us=5, runs_at=at + 120, runs_us=300, stream=20)


_SIZE = {"Collective name": "all_gather", "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 128}


def _sized(job: _Job, launched: float, runs: float, us: float) -> None:
    job.main.op("record_param_comms", at=launched - 2, us=10, more=_SIZE)
    job.main.launch(GATHER, at=launched, us=5, runs_at=runs, runs_us=us, stream=20)


def test_launched_late_and_what_the_host_did(tmp_path: Path) -> None:
    job = _Job()
    _equal(job)
    job.computes(100, 120, 500)
    job.main.frame("train.py(12): sleep_before_gather", at=610, us=390)
    _sized(job, 1_010, 1_022, 300)
    job.computes(1_100, 1_323, 400)
    facts = job.facts(tmp_path)
    found = facts.exposure
    assert found.why.tolist() == [ExposureReason.LATE_LAUNCH, ExposureReason.HIDDEN, ExposureReason.HIDDEN]
    assert "sleep_before_gather" in facts.host.name(int(found.late_in[0]))


def test_waits_for_another_rank(tmp_path: Path) -> None:
    job = _Job()
    _equal(job)
    job.computes(100, 120, 500)
    _sized(job, 610, 622, 1_300)  # 300 us of transfer, and 1,000 of waiting
    job.computes(700, 1_923, 400)
    assert job.reasons(tmp_path)[0] == "other_rank"


def test_same_stream(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.sends(200, 620, 300, stream=7)
    job.computes(300, 921, 400)
    assert job.reasons(tmp_path) == ["same_stream"]


@pytest.mark.parametrize(("launched", "expected"), [(300, "unknown"), (1_400, "host_behind")])
def test_the_host_launches_what_computes_next_too_late(
    launched: float, expected: str, tmp_path: Path
) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.sends(710, 722, 300)
    job.computes(launched, 1_420, 400)
    assert job.reasons(tmp_path) == [expected]


def test_the_host_waits_for_it(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 500)
    job.sends(710, 722, 300)
    job.main.sync(at=720, us=320)
    job.computes(1_100, 1_120, 400)
    assert job.reasons(tmp_path) == ["synchronized"]


@pytest.mark.parametrize(("us", "expected"), [(380, "rate_limited"), (100, "not_prefetched")])
def test_rate_limiter(us: float, expected: str, tmp_path: Path) -> None:
    job = _Job()
    job.computes(50, 120, 500)
    job.sends(100, 125, 400)
    job.main.annotation("FullyShardedDataParallel._pre_forward", at=230, us=520)
    job.main.annotation("FullyShardedDataParallel.rate_limiter", at=690 - us, us=us)
    job.sends(710, 722, 350)
    job.computes(800, 1_073, 400)
    assert job.reasons(tmp_path) == ["hidden", expected]


def test_behind_another_collective(tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 400)
    job.sends(150, 200, 600, kernel=SCATTER)
    job.sends(300, 803, 300)
    job.computes(400, 1_104, 400)
    assert job.reasons(tmp_path)[1] == "behind_collective"


@pytest.mark.parametrize(
    ("mark", "kernel", "expected"),
    [
        ("_c10d_functional::all_reduce", REDUCE, "needed_at_once"),
        ("FSDP::all_gather (layers.1)", GATHER, "after_computing"),
    ],
)
def test_begins_when_computing_ends(mark: str, kernel: str, expected: str, tmp_path: Path) -> None:
    job = _Job()
    job.computes(100, 120, 900)
    job.main.op(mark, at=190, us=40)
    job.sends(200, 1_024, 300, kernel=kernel, mark=mark if mark.startswith("FSDP") else "")
    job.computes(300, 1_325, 400)
    assert job.reasons(tmp_path) == [expected]


def test_the_last_bucket(tmp_path: Path) -> None:
    job = _Job()
    job.computes(80, 100, 900)
    for at, runs in ((200, 300), (400, 1_004)):
        job.main.op("torch::autograd::AccumulateGrad", at=at - 10, us=40)
        job.sends(at, runs, 300, kernel=REDUCE)
    job.computes(500, 1_305, 400)
    found = job.facts(tmp_path).exposure
    assert found.why.tolist() == [ExposureReason.HIDDEN, ExposureReason.LAST_BUCKET]
    assert found.parallelism == ["DDP", "DDP"]
    assert [(unit.number, unit.of) for unit in found.by_unit] == [(2, 2), (1, 2)]


@pytest.mark.parametrize(
    ("adds", "again"),
    [(True, ["reduced_again", "last_bucket"]), (False, ["after_computing", "last_bucket"])],
)
def test_gradients_of_a_micro_batch_are_reduced_again(adds: bool, again: list[str], tmp_path: Path) -> None:
    """Two passes and one optimizer step: the second adds to the gradients, or is another model's."""
    job = _Job()
    for number, at in enumerate((100, 3_000)):
        job.main.annotation("DistributedDataParallel.forward", at=at, us=50)
        job.computes(at + 60, at + 80, 900)
        job.main.op("torch::autograd::AccumulateGrad", at=at + 190, us=60)
        if adds and number:
            job.main.op("aten::add_", at=at + 192, us=5)
        job.sends(at + 200, at + 984, 300, kernel=REDUCE)
        job.computes(at + 300, at + 1_285, 400)
    job.main.annotation("Optimizer.step#SGD.step", at=6_000, us=100)
    # A third pass, whose optimizer step was not recorded.
    job.main.annotation("DistributedDataParallel.forward", at=7_000, us=50)
    assert job.reasons(tmp_path) == again


@pytest.mark.parametrize(
    ("forward", "gather", "reduce"),
    [
        ("FSDP::root_pre_forward", "FSDP::all_gather (layers.0)", "FSDP::post_backward_reduce (layers.0)"),
        (
            "FullyShardedDataParallel.forward",
            "FullyShardedDataParallel._pre_forward",
            "FullyShardedDataParallel._post_backward_hook",
        ),
    ],
)
@pytest.mark.parametrize("adds", [True, False])
def test_fsdp_sends_in_each_micro_batch(
    adds: bool, forward: str, gather: str, reduce: str, tmp_path: Path
) -> None:
    """Two passes and one optimizer step. In the backward pass, a unit is computed again."""
    job = _Job()
    for number, at in enumerate((100, 3_000)):
        job.main.annotation(forward, at=at, us=120)
        job.main.annotation(gather, at=at + 5, us=60)
        job.sends(at + 10, at + 22, 300, kernel=GATHER)
        job.computes(at + 80, at + 323, 600)
        job.main.op("autograd::engine::evaluate_function: CheckpointBackward", at=at + 150, us=40)
        job.main.annotation("FullyShardedDataParallel.forward", at=at + 160, us=20)
        job.main.annotation(reduce, at=at + 200, us=60)
        if adds and number:
            job.main.frame("fsdp_collectives.py(703): foreach_reduce", at=at + 201, us=10)
            job.main.op("aten::add_", at=at + 202, us=5)
        job.sends(at + 220, at + 924, 300, kernel=SCATTER)
        job.computes(at + 300, at + 1_225, 400)
    job.main.annotation("Optimizer.step#SGD.step", at=6_000, us=100)
    found = [one == "reduced_again" for one in job.reasons(tmp_path)]
    # Gathered and reduced, then again: the second gather is needless, and the first reduction.
    assert found == [False, adds, adds, False]


def test_units_and_parallelism(tmp_path: Path) -> None:
    job = _Job()
    job.computes(50, 60, 200)
    for number, mark in enumerate(("FSDP::all_gather", "FSDP::all_gather (layers.0)")):
        job.sends(400 + 400 * number, 412 + 400 * number, 300, mark=mark)
    job.computes(1_000, 1_113, 100)
    found = job.facts(tmp_path).exposure
    assert found.unit == ["(root)", "layers.0"]
    assert found.parallelism == ["FSDP", "FSDP"]
    assert sum(unit.exposed_ns for unit in found.by_unit) == int(found.exposed_ns.sum()) == 600_000
