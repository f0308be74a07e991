"""Settings of a simulated job of many ranks, and the faults that it can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Parallelism = Literal["ddp", "fsdp", "pp", "tp", "ep"]

FaultKind = Literal[
    "slow_gpu",
    "loader",
    "gc",
    "logging",
    "python",
    "allocator",
    "uneven_work",
    "uneven_batches",
    "slow_link",
    "mismatch",
    "late_start",
    "not_overlapped",
]

RULES: dict[FaultKind, str] = {
    "slow_gpu": "GD602",
    "loader": "GD602",
    "gc": "GD602",
    "logging": "GD602",
    "python": "GD602",
    "allocator": "GD602",
    "uneven_work": "GD603",
    "uneven_batches": "GD603",
    "slow_link": "GD604",
    "mismatch": "GD605",
    "late_start": "GD606",
    "not_overlapped": "GD607",
}

CAUSES: dict[FaultKind, str] = {
    "loader": "input",
    "gc": "python",
    "logging": "sync",
    "python": "python",
    "allocator": "allocator",
}
"""What the rank's host does, in the words of the idle ledger, for faults of the host."""


@dataclass(frozen=True)
class JobFault:
    """One planted fault. steps: in which it happens; empty means in all.

    What `amount` is, by kind:
        slow_gpu         factor on the duration of the ranks' compute kernels
        loader           ms by which each batch is late
        gc               ms of gc.collect()
        logging          ms of Python after reading the loss with .item() in the middle of the step
        python           ms of Python before the forward pass
        allocator        ms in cudaFree and cudaMalloc
        uneven_work      factor on the tokens of the ranks' batches
        uneven_batches   factor on the tokens of one rank, another one in each step (`ranks` is ignored)
        slow_link        factor on the time of transfers that pass the ranks' links
        mismatch         factor on the size of one collective per step of the ranks
        late_start       ms by which the ranks begin to record, and to work, after the others
        not_overlapped   ignored, as `ranks` is: communication starts when nothing is left to compute
    """

    kind: FaultKind
    ranks: tuple[int, ...] = ()
    amount: float = 0
    steps: tuple[int, ...] = ()

    @property
    def rule(self) -> str:
        return RULES[self.kind]

    @property
    def cause(self) -> str:
        """The kind of the ledger's idle time for faults of the host, else the fault's kind."""
        return CAUSES.get(self.kind, self.kind)

    def hits(self, rank: int, step: int) -> bool:
        return rank in self.ranks and (not self.steps or step in self.steps)


@dataclass(frozen=True)
class DistributedJob:
    """A training job of a transformer. With the defaults no rank waits long for another.

    degree: ranks of a pipeline, a tensor or an expert group; the rest is data parallel.
    """

    parallelism: Parallelism = "ddp"
    ranks: int = 8
    hosts: int = 1
    degree: int = 1
    steps: int = 5
    layers: int = 6  # of the model; of each stage with "pp"
    layer_us: float = 900  # forward time of one layer
    layer_mib: float = 24  # gradients of one layer
    tokens: int = 4_096  # of a rank's batch, or of a microbatch
    microbatches: int = 8  # with "pp"
    clips: bool = True  # with "pp": gradients are clipped by their norm over all stages
    fault: JobFault | None = None
    noise: float = 0.015  # relative spread of a kernel's duration (standard deviation)
    batch_spread: float = 0.0  # likewise, of the tokens of batches
    start_spread_us: float = 300  # between the ranks' starts: each one's profiler takes its time
    skew_s: float = 5_000  # greatest difference of a host's clock from the true time
    drift_ppm: float = 20  # greatest drift of a host's clock
    with_sequence: bool = True  # `Seq` of collectives: torch 2.5 and later record it
    with_groups: bool = True  # process groups: torch 2.3 and later record them
    with_stacks: bool = True

    def __post_init__(self) -> None:
        assert self.ranks % self.hosts == 0, "every host has as many ranks"
        assert self.ranks % self.degree == 0, "degree divides the ranks"

    @property
    def ranks_per_host(self) -> int:
        return self.ranks // self.hosts

    def host_of(self, rank: int) -> str:
        return f"node{rank // self.ranks_per_host}"
