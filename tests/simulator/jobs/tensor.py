"""Tensor parallel: the ranks of a group compute each layer together and reduce its activations."""

from __future__ import annotations

from tests.simulator.jobs.ddp import Ddp
from tests.simulator.jobs.layer import ATTENTION, HIDDEN, MLP
from tests.simulator.jobs.links import Group
from tests.simulator.jobs.rank import INNER_STREAM


class Tensor(Ddp):
    """One rank of a tensor group. Nothing computes while activations are reduced."""

    def replicas(self) -> Group | None:
        return self.groups.get("outer")

    def forward_layer(self, number: int, tokens: int) -> None:
        with self.block(number):
            for parts in (ATTENTION, MLP):
                self.layer.forward(parts, tokens)
                self._reduce_activations(tokens)

    def backward_layer(self, number: int, tokens: int) -> None:
        for parts in (MLP, ATTENTION):
            self.layer.backward(parts, tokens)
            self._reduce_activations(tokens)

    def _reduce_activations(self, tokens: int) -> None:
        group, elements = self.groups["inner"], tokens * HIDDEN
        reduced = self.network.collective(self.rank, "all_reduce", group, elements, stream=INNER_STREAM)
        self.rank.hold(7, reduced)
