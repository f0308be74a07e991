"""DistributedDataParallel: the gradients of each bucket are reduced while backward goes on."""

from __future__ import annotations

from tests.simulator.jobs.layer import optimizer
from tests.simulator.jobs.links import Group
from tests.simulator.jobs.program import ENGINE, Training
from tests.simulator.jobs.rank import COMM_STREAM
from tests.simulator.jobs.solver import Program
from tests.simulator.script import place

MIB = 2**20
MISMATCHED = 1  # the bucket whose size differs where collectives do not match


class Ddp(Training):
    """Without a group of replicas, no gradients are reduced."""

    def train(self, tokens: int) -> Program:
        yield from self.forward(tokens)
        self.backward(tokens)
        self.update()

    def forward(self, tokens: int) -> Program:
        rank = self.rank
        with rank.frames("torch/nn/parallel/distributed.py(1637): forward", place("Model.forward")):
            for number in range(self.job.layers):
                self.forward_layer(number, tokens)
        yield from self.compute_loss(tokens)

    def backward(self, tokens: int) -> None:
        """Run backward; reduce each layer's gradients when they are complete, or all of them at the end."""
        rank, group = self.rank, self.replicas()
        with rank.frames(*ENGINE), rank.on_autograd():
            for bucket in range(self.job.layers):
                self.backward_layer(tokens)
                if group and not self.has("not_overlapped"):
                    self._reduce(bucket, group)
            if group and self.has("not_overlapped"):
                for bucket in range(self.job.layers):
                    self._reduce(bucket, group)
            last = rank.last(COMM_STREAM)
            if last is not None:
                rank.hold(7, last)

    def replicas(self) -> Group | None:
        """The group that reduces gradients."""
        return self.groups["world"]

    def update(self) -> None:
        optimizer(self.rank, 12 * self.job.layers)

    def _reduce(self, bucket: int, group: Group) -> None:
        told = self.amount("mismatch", self.rank.step) if bucket == MISMATCHED else 0.0
        self.all_reduce(self.job.layer_mib * MIB / 2, group, told=told or 1.0)
