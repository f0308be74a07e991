"""Pipeline: one stage per rank, microbatches in the order 1F1B. Replicas of a stage reduce its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tests.simulator.jobs.ddp import Ddp
from tests.simulator.jobs.layer import HIDDEN
from tests.simulator.jobs.links import Group
from tests.simulator.jobs.rank import INNER_STREAM
from tests.simulator.jobs.solver import Program, Work

SHARE = 1 / 8
"""Of the activations, that one rank sends: with sequence parallelism each rank of a stage sends its part."""


class Pipeline(Ddp):
    """One stage. Uneven work means that the stage has more layers."""

    def train(self, tokens: int) -> Program:
        stages, count = self.groups["inner"].ranks, self.job.microbatches
        self._stage, self._stages = stages.index(self.rank.number), stages
        ahead = min(len(stages) - self._stage - 1, count)
        for _ in range(ahead):
            yield from self._forward_one(tokens)
        for done in range(count):
            if done < count - ahead:
                yield from self._forward_one(tokens)
            self._backward_one(tokens, last=done == count - 1)
        if self.job.clips:
            self._clip()
        self.update()

    def replicas(self) -> Group | None:
        return self.groups.get("outer")

    def _clip(self) -> None:
        """Reduce the norm of the gradients over all stages."""
        norm = self.network.collective(
            self.rank, "all_reduce", self.groups["inner"], 1, stream=INNER_STREAM + 20
        )
        self.rank.hold(7, norm)

    def _forward_one(self, tokens: int) -> Program:
        self._receive(-1, tokens)
        self.forward(tokens)
        for number in self._more_layers():
            self.forward_layer(number, tokens)
        self._send(1, tokens)
        if self._stage == len(self._stages) - 1:
            yield from self.compute_loss(tokens)

    def _backward_one(self, tokens: int, *, last: bool) -> None:
        self._receive(1, tokens)
        for number in self._more_layers():
            self.backward_layer(number, tokens)
        self.backward(tokens, reduce=last)
        self._send(-1, tokens)

    def _more_layers(self) -> Iterator[int]:
        """Yield the numbers of layers that only this stage has."""
        amount = self.amount("uneven_work", self.rank.step)
        if amount:
            with self.rank.extra():
                yield from range(self.job.layers, round(self.job.layers * amount))

    def _receive(self, way: int, tokens: int) -> None:
        """Let the compute stream wait for the stage before (-1) or after (1) this one."""
        received = self._exchange("recv", way, tokens)
        if received is not None:
            self.rank.hold(7, received)

    def _send(self, way: int, tokens: int) -> None:
        self._exchange("send", way, tokens)

    def _exchange(self, kind: Literal["send", "recv"], way: int, tokens: int) -> Work | None:
        peer = self._stage + way
        if not 0 <= peer < len(self._stages):
            return None
        stream = INNER_STREAM + 4 * ((kind == "recv") + (way > 0) * 2)
        group, elements = self.groups["inner"], SHARE * tokens * HIDDEN
        return self.network.send_or_receive(
            self.rank, kind, group, self._stages[peer], elements, stream=stream
        )
