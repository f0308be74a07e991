"""Program: the training loop of one rank, with its faults. Subclasses train a step of each parallelism."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulator.jobs.layer import ATTENTION, MLP, Layer, loss
from tests.simulator.jobs.links import Group
from tests.simulator.jobs.network import Network
from tests.simulator.jobs.rank import COPY_STREAM, Rank
from tests.simulator.jobs.settings import DistributedJob, FaultKind
from tests.simulator.jobs.solver import Program, Work
from tests.simulator.script import place

MIB = 2**20
BATCH_BYTES = 4 * MIB
MISMATCHED = 1  # the layer whose gradients differ in size where collectives do not match
MORE_OF_ELSE = ("pp", "ep")  # uneven work is not longer batches, but more layers, or more tokens for experts
WORLD = "0"  # c10d's name of the default group

ENGINE = (
    "torch/_tensor.py(626): backward",
    "torch/autograd/__init__.py(340): backward",
    "torch/autograd/graph.py(823): _engine_run_backward",
    "<built-in method run_backward of torch._C._EngineBase object at 0x7f81a44c7010>",
)


class Training:
    """One rank of the job. run() is its host."""

    def __init__(self, job: DistributedJob, rank: Rank, network: Network, seed: str) -> None:
        self.job = job
        self.rank = rank
        self.network = network
        self.groups = groups_of(job, rank.number)
        self._seed = seed
        self.layer = Layer(rank, job.layer_us, job.tokens, job.noise)
        self.steps: list[tuple[int, int]] = []  # on the host
        self.optimized: list[Work] = []  # the last kernel of each step's optimizer
        self._loss: Work | None = None

    def run(self) -> Program:
        rank = self.rank
        late = self.amount("late_start", 0)
        if late:
            rank.now_ns += round(late * 1e6)
        rank.recording.start_ns = rank.now_ns
        with rank.frames(place("<module>"), place("main"), place("train")):
            rank.spend(30_000)
            for step in range(self.job.steps):
                rank.step = step
                start = rank.now_ns
                with rank.span("annotation", f"ProfilerStep#{10 + step}"):
                    yield from self._one_step(step)
                self.steps.append((start, rank.now_ns))
            with rank.frames("torch/profiler/profiler.py(850): stop"):
                yield from rank.wait_for_all()

    def train(self, tokens: int) -> Program:
        """Run forward, backward and optimizer."""
        raise NotImplementedError

    def _one_step(self, step: int) -> Program:
        rank = self.rank
        rank.slower = self.amount("slow_gpu", step) or 1.0
        self._load(step)
        rank.spend(15_000)
        with rank.frames(place("train_step")):
            self._collect(step)
            self._compute_on_the_host(step)
            yield from self._reallocate(step)
            batch = rank.copy("HtoD", BATCH_BYTES, pinned=True, stream=COPY_STREAM)
            rank.hold(7, batch)
            yield from self.train(self.tokens_of(rank.number, step))
        last = rank.last()
        assert last is not None
        self.optimized.append(last)
        yield from self._wait_for_progress()
        with rank.frames("torch/profiler/profiler.py(870): step"):
            rank.spend(20_000)

    def _wait_for_progress(self) -> Program:
        """Wait for this step's loss, or the last step's work: this keeps the host from running far ahead."""
        if self._loss is not None:
            yield from self.rank.wait(self._loss)
        elif len(self.optimized) > 1:
            yield from self.rank.wait(self.optimized[-2])

    # Parts of a step

    def forward_layer(self, number: int, tokens: int) -> None:
        """Run a layer's forward pass."""
        with self.block(number):
            self.layer.forward(ATTENTION + MLP, tokens)

    def backward_layer(self, number: int, tokens: int) -> None:
        self.layer.backward(ATTENTION + MLP, tokens)

    @contextmanager
    def block(self, number: int) -> Iterator[None]:
        """Frames of a layer's module."""
        with self.rank.frames(f"nn.Module: Block_{number}", place("Block.forward")):
            self.rank.spend(10_000)
            yield

    def compute_loss(self, tokens: int) -> Program:
        """Compute the loss and copy it to the host without waiting for it."""
        loss(self.rank, tokens)
        self._loss = self.rank.copy("DtoH", 4, pinned=True, stream=7)
        yield from self._log(self.rank.step)

    @property
    def layer_elements(self) -> float:
        """Weights of one layer, and gradients."""
        return self.job.layer_mib * MIB / 2

    def told(self, bucket: int) -> float:
        """Return the factor on the recorded size of a collective for a layer's gradients."""
        return self.amount("mismatch", self.rank.step) or 1.0 if bucket == MISMATCHED else 1.0

    # Faults

    def amount(self, kind: FaultKind, step: int) -> float:
        """Return the fault's amount if it hits this rank in this step, else 0."""
        fault = self.job.fault
        if fault is None or fault.kind != kind or not fault.hits(self.rank.number, step):
            return 0.0
        return fault.amount

    def has(self, kind: FaultKind) -> bool:
        return self.job.fault is not None and self.job.fault.kind == kind

    def tokens_of(self, rank: int, step: int) -> int:
        """Return how long a rank's batch is."""
        job, fault, factor = self.job, self.job.fault, 1.0
        if fault is not None and fault.kind == "uneven_work" and fault.hits(rank, step):
            factor = fault.amount if job.parallelism not in MORE_OF_ELSE else 1.0
        if fault is not None and fault.kind == "uneven_batches":
            longest = random.Random(f"{self._seed} uneven {step}").randrange(replicas_of(job))
            factor = fault.amount if longest == replica_of(job, rank) else 1.0
        replica = replica_of(job, rank)
        usual = 1 + job.batch_spread * random.Random(f"{self._seed} batch {replica} {step}").gauss(0, 1)
        return round(job.tokens * factor * usual / 8) * 8

    def _load(self, step: int) -> None:
        """`next(loader)`: take a batch from a worker process, which may be late."""
        rank = self.rank
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        with rank.frames("torch/utils/data/dataloader.py(720): __next__"), rank.span("annotation", name):
            with rank.frames(
                "torch/utils/data/dataloader.py(783): _next_data",
                "torch/utils/data/dataloader.py(1275): _try_get_data",
            ):
                rank.spend(90_000)
                self._spend_extra("loader", step)

    def _spend_extra(self, kind: FaultKind, step: int) -> None:
        amount = self.amount(kind, step)
        if amount:
            with self.rank.extra():
                self.rank.spend(amount * 1e6)

    def _collect(self, step: int) -> None:
        if self.amount("gc", step):
            with self.rank.frames(place("collect"), "<built-in function collect>"):
                self._spend_extra("gc", step)

    def _compute_on_the_host(self, step: int) -> None:
        if self.amount("python", step):
            with self.rank.frames(place("reweigh_tokens")):
                self._spend_extra("python", step)

    def _reallocate(self, step: int) -> Program:
        """The caching allocator finds nothing that fits: it frees its cache and asks the driver."""
        amount, rank = self.amount("allocator", step), self.rank
        if amount:
            with rank.extra(), rank.frames(place("grow_workspace")), rank.operators("aten::empty"):
                yield from rank.wait_for_all("cudaFree", amount * 0.6e6)
                rank.call("cudaMalloc", amount * 0.4e6)

    def _log(self, step: int) -> Program:
        """Read the loss on the host, and log it."""
        amount = self.amount("logging", step)
        if not amount:
            return
        rank = self.rank
        with rank.extra(), rank.frames("wandb/sdk/wandb_run.py(1712): log"):
            with rank.operators("aten::item", "aten::_local_scalar_dense"):
                copied = rank.copy("DtoH", 4, pinned=False, stream=7)
                yield from rank.wait(copied, "cudaStreamSynchronize")
            rank.spend(amount * 1e6)


def replicas_of(job: DistributedJob) -> int:
    """Return how many batches a step has: ranks of one tensor group or pipeline share theirs."""
    return job.ranks // job.degree if job.parallelism in ("pp", "tp") else job.ranks


def replica_of(job: DistributedJob, rank: int) -> int:
    replicas = replicas_of(job)
    return rank % replicas if job.parallelism == "pp" else rank * replicas // job.ranks


def _mesh(job: DistributedJob) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the ranks of all inner groups, and of all outer ones."""
    replicas = job.ranks // job.degree
    if job.parallelism == "pp":
        inner = [tuple(range(first, job.ranks, replicas)) for first in range(replicas)]
        outer = [tuple(range(s * replicas, (s + 1) * replicas)) for s in range(job.degree)]
    else:
        inner = [tuple(range(r * job.degree, (r + 1) * job.degree)) for r in range(replicas)]
        outer = [tuple(range(place, job.ranks, job.degree)) for place in range(job.degree)]
    return inner, outer


def groups_of(job: DistributedJob, rank: int) -> dict[str, Group]:
    """Return the rank's process groups by purpose: "world", and "inner" and "outer" where there is a degree.

    Inner groups are the pipeline, the tensor or the expert groups, or with "fsdp" those that share one set of
    weights; outer ones hold replicas of the same weights. Members of an inner group are neighbors, so that
    they share a host, except for the stages of a pipeline, which are far apart.
    """
    world = Group(WORLD, "default_pg", tuple(range(job.ranks)))
    if job.degree == 1:
        return {"world": world}
    inner, outer = _mesh(job)
    found = {"world": world}
    for what, mesh, groups, first in (
        ("inner", f"mesh_{job.parallelism}", inner, 1),
        ("outer", "mesh_dp", outer, 1 + len(inner)),
    ):
        number, ranks = next((n, ranks) for n, ranks in enumerate(groups) if rank in ranks)
        if len(ranks) > 1:
            found[what] = Group(str(first + number), mesh, ranks)
    return found
