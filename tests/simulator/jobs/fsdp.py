"""Fully sharded: each layer's weights are gathered before their use, its gradients reduced and scattered.

With a degree, weights are in shards within groups of that size, and gradients are reduced across them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.jobs.layer import optimizer
from tests.simulator.jobs.program import ENGINE, Training
from tests.simulator.jobs.rank import COMM_STREAM, GATHER_STREAM, INNER_STREAM
from tests.simulator.jobs.solver import Program, Work
from tests.simulator.script import place

COPY_OUT = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel<int>"
COPY_US = 15


class Fsdp(Training):
    """Gathers the next layer's weights while a layer computes; without overlap, only when it needs them."""

    def train(self, tokens: int) -> Program:
        rank, layers = self.rank, range(self.job.layers)
        with rank.frames(place("Model.forward")):
            weights = Weights(self, layers)
            for number in layers:
                weights.use(number)
                self.forward_layer(number, tokens)
        yield from self.compute_loss(tokens)
        with rank.frames(*ENGINE), rank.on_autograd():
            weights = Weights(self, layers[::-1])
            for number in layers[::-1]:
                weights.use(number)
                self.backward_layer(number, tokens)
                self._reduce(number)
            last = rank.last(COMM_STREAM)
            assert last is not None
            rank.hold(7, last)
        optimizer(rank, 4 * self.job.layers)

    def _reduce(self, number: int) -> None:
        """Reduce and scatter the gradients of a layer, then reduce the shard across replicas."""
        group, replicas = self.groups.get("inner", self.groups["world"]), self.groups.get("outer")
        with self.rank.span("annotation", f"FSDP::post_backward_reduce (layers.{number})"):
            scattered = self.network.collective(
                self.rank,
                "reduce_scatter",
                group,
                self.layer_elements,
                stream=INNER_STREAM if replicas else COMM_STREAM,
                told=self.told(number),
            )
        if replicas:
            self.rank.hold(COMM_STREAM, scattered)
            self.network.collective(
                self.rank,
                "all_reduce",
                replicas,
                self.layer_elements / len(group.ranks),
                stream=COMM_STREAM,
                after_compute=False,
            )


class Weights:
    """The full weights of layers in the order in which they are used."""

    def __init__(self, training: Fsdp, order: Sequence[int]) -> None:
        self._training = training
        self._order = order
        self._gathered: dict[int, Work] = {}
        self._before: Work | None = training.rank.last()  # the end of the layer before the last one

    def use(self, number: int) -> None:
        """Let the compute stream wait for a layer's weights; gather the next layer's meanwhile."""
        rank, following = self._training.rank, self._order.index(number) + 1
        overlapped = not self._training.has("not_overlapped")
        if number not in self._gathered:
            self._gather(number, after_compute=not overlapped)
        before = rank.last()
        rank.hold(7, self._gathered[number])
        rank.kernel("aten::split_with_sizes_copy", COPY_OUT, COPY_US)
        if overlapped and following < len(self._order):
            self._gather(self._order[following], after_compute=False)
        self._before = before

    def _gather(self, number: int, *, after_compute: bool) -> None:
        training = self._training
        if self._before is not None and not after_compute:  # memory for two layers' weights at once
            training.rank.hold(GATHER_STREAM, self._before)
        with training.rank.span("annotation", f"FSDP::all_gather (layers.{number})"):
            self._gathered[number] = training.network.collective(
                training.rank,
                "all_gather",
                training.groups.get("inner", training.groups["world"]),
                training.layer_elements,
                stream=GATHER_STREAM,
                after_compute=after_compute,
            )
