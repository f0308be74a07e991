"""Links between GPUs: process groups, how collectives are named in a trace, and how long a transfer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.simulator.jobs.settings import DistributedJob

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv"]

LOCAL_GB_PER_S = 180.0  # bus bandwidth between GPUs of one host
REMOTE_GB_PER_S = 22.0  # of one GPU's network card
LAUNCH_NS = 14_000  # of an empty collective on one host
REMOTE_LAUNCH_NS = 28_000
LOCAL_JITTER_NS = 1_500  # of the ends of one collective
REMOTE_JITTER_NS = 4_000

_KERNELS = "(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Naming:
    """How c10d and NCCL name one kind of collective."""

    operator: str
    recorded: str  # `Collective name`
    mark: str
    kernel: str


NAMES: dict[Kind, Naming] = {
    "all_reduce": Naming("c10d::allreduce_", "allreduce", "nccl:all_reduce", "AllReduce_Sum_bf16_RING_LL"),
    "all_gather": Naming(
        "c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base", "AllGather_RING_LL"
    ),
    "reduce_scatter": Naming(
        "c10d::_reduce_scatter_base_",
        "_reduce_scatter_base",
        "nccl:_reduce_scatter_base",
        "ReduceScatter_Sum_bf16_RING_LL",
    ),
    "all_to_all": Naming("c10d::alltoall_base_", "all_to_allv", "nccl:all_to_all", "SendRecv"),
    "send": Naming("c10d::send", "send", "nccl:send", "SendRecv"),
    "recv": Naming("c10d::recv_", "recv", "nccl:recv", "SendRecv"),
}


def kernel_name(kind: Kind) -> str:
    return f"ncclDevKernel_{NAMES[kind].kernel}{_KERNELS}"


@dataclass(frozen=True)
class Group:
    """A process group. name: the number that c10d gives it, the same on all ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]

    def config(self) -> dict[str, Any]:
        """Return the group's entry in `pg_config`."""
        return {
            "pg_name": self.name,
            "pg_desc": self.description,
            "backend_config": "cuda:nccl",
            "pg_size": len(self.ranks),
            "ranks": list(self.ranks),
        }


class Links:
    """The job's network. A slow link of a rank is its network card, or its NVLink if all are on one host."""

    def __init__(self, job: DistributedJob) -> None:
        self._job = job

    def hosts(self, ranks: Sequence[int]) -> int:
        return len({self._job.host_of(rank) for rank in ranks})

    def jitter_ns(self, ranks: Sequence[int]) -> int:
        return LOCAL_JITTER_NS if self.hosts(ranks) == 1 else REMOTE_JITTER_NS

    def are_slow(self, ranks: Sequence[int], step: int) -> bool:
        """Return whether what these ranks exchange passes the slow link of a fault."""
        fault = self._job.fault
        if fault is None or fault.kind != "slow_link" or not self.pass_links(ranks):
            return False
        return any(fault.hits(rank, step) for rank in ranks)

    def pass_links(self, ranks: Sequence[int]) -> bool:
        """Return whether what these ranks exchange passes links of the kind that a fault slows."""
        return self._job.hosts == 1 or self.hosts(ranks) > 1

    def transfer_ns(self, kind: Kind, ranks: Sequence[int], bytes: float, step: int) -> float:
        """Return the time from the last arrival to the end. bytes: of the full tensor, not of a shard."""
        n = len(ranks)
        share = {"all_reduce": 2 * (n - 1) / n, "send": 1.0, "recv": 1.0}
        speed, launch = LOCAL_GB_PER_S, LAUNCH_NS
        if self.hosts(ranks) > 1:
            on_one_host = max(1, n // self.hosts(ranks))
            ring = 1 if kind in ("send", "recv", "all_to_all") else on_one_host
            speed, launch = min(LOCAL_GB_PER_S, REMOTE_GB_PER_S * ring), REMOTE_LAUNCH_NS
        fault = self._job.fault
        slower = fault.amount if fault and self.are_slow(ranks, step) else 1.0
        return launch + bytes * share.get(kind, (n - 1) / n) / speed * slower
