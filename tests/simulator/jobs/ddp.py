"""DistributedDataParallel: the gradients of each layer are reduced while backward goes on."""

from __future__ import annotations

from tests.simulator.jobs.layer import optimizer
from tests.simulator.jobs.links import Group
from tests.simulator.jobs.program import ENGINE, Training
from tests.simulator.jobs.rank import COMM_STREAM
from tests.simulator.jobs.solver import Program
from tests.simulator.script import place


class Ddp(Training):
    """Data parallel over all ranks. Subclasses are data parallel over their replicas."""

    def train(self, tokens: int) -> Program:
        self.forward(tokens)
        yield from self.compute_loss(tokens)
        self.backward(tokens)
        self.update()

    def forward(self, tokens: int) -> None:
        with self.rank.frames("torch/nn/parallel/distributed.py(1637): forward", place("Model.forward")):
            for number in range(self.job.layers):
                self.forward_layer(number, tokens)

    def backward(self, tokens: int, *, reduce: bool = True) -> None:
        """Run backward. reduce: reduce each layer's gradients when they are complete, or all at the end."""
        rank, group = self.rank, self.replicas() if reduce else None
        overlapped = not self.has("not_overlapped")
        with rank.frames(*ENGINE), rank.on_autograd():
            for number in reversed(range(self.job.layers)):
                self.backward_layer(number, tokens)
                if group and overlapped:
                    self._reduce(number, group)
            if group and not overlapped:
                for number in reversed(range(self.job.layers)):
                    self._reduce(number, group)
            last = rank.last(COMM_STREAM)
            if group and last is not None:
                rank.hold(7, last)

    def replicas(self) -> Group | None:
        """Return the group that reduces gradients."""
        return self.groups["world"]

    def update(self) -> None:
        optimizer(self.rank, 12 * self.job.layers)

    def _reduce(self, number: int, group: Group) -> None:
        self.network.collective(
            self.rank,
            "all_reduce",
            group,
            self.layer_elements,
            stream=COMM_STREAM,
            told=self.told(number),
        )
