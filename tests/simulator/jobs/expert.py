"""Expert parallel: tokens go to the ranks that have their experts, and come back, in every layer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulator.jobs.ddp import Ddp
from tests.simulator.jobs.layer import ATTENTION, HIDDEN, MLP
from tests.simulator.jobs.rank import INNER_STREAM

SPREAD = 0.04  # of the tokens that go to each rank: routing is never quite even


class Expert(Ddp):
    """One rank of an expert group. Uneven work means that more tokens go to its experts."""

    def forward_layer(self, number: int, tokens: int) -> None:
        with self.block(number):
            self.layer.forward(ATTENTION, tokens)
            sends, receives = self._routed(number, tokens)
            self._exchange(sends, receives)
            self.layer.forward(MLP, sum(receives))
            self._exchange(receives, sends)

    def backward_layer(self, number: int, tokens: int) -> None:
        sends, receives = self._routed(number, tokens)
        self._exchange(sends, receives)
        self.layer.backward(MLP, sum(receives))
        self._exchange(receives, sends)
        self.layer.backward(ATTENTION, tokens)

    def _exchange(self, sends: Sequence[int], receives: Sequence[int]) -> None:
        group = self.groups["inner"]
        done = self.network.all_to_all(
            self.rank,
            group,
            [HIDDEN * count for count in sends],
            [HIDDEN * count for count in receives],
            stream=INNER_STREAM,
        )
        self.rank.hold(7, done)

    def _routed(self, number: int, tokens: int) -> tuple[list[int], list[int]]:
        """Return how many tokens this rank sends to each rank of its group, and receives from each."""
        group, step = self.groups["inner"], self.rank.step
        draw = random.Random(f"{self._seed} routes {group.name} {step} {number}")
        weights = [max(0.2, 1 + SPREAD * draw.gauss(0, 1)) for _ in group.ranks]
        fault = self.job.fault
        if fault is not None and fault.kind == "uneven_work":
            factors = [fault.amount if fault.hits(rank, step) else 1 for rank in group.ranks]
            weights = [weight * factor for weight, factor in zip(weights, factors, strict=True)]
        share = [weight / sum(weights) for weight in weights]
        own = share[group.ranks.index(self.rank.number)]
        receives = [round(self.tokens_of(rank, step) * own) for rank in group.ranks]
        return [round(tokens * one) for one in share], receives
