"""Which of the usual causes a memory leak has: each is recognized by what stays in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.leak_sites import (
    NOTED_SHARE,
    SCALAR_BYTES,
    has_no_graph,
    is_in_module,
    is_in_trace,
    is_noted_leaf,
    is_own_copy,
    may_be_metric,
    may_have_graph,
)
from tb_gpudiag.rules.shared.usual_causes import (
    CACHE,
    GRADIENTS,
    GRAPH,
    HOOKS,
    LARGER,
    METRICS,
    OTHER,
    LeakCause,
)
from tb_gpudiag.vocabulary.operators import JOINS, LOSS, MAKES_STATE
from tb_gpudiag.vocabulary.torch_frames import FUNCTION_APPLY, RECURRENT, inner_part

if TYPE_CHECKING:
    from tb_gpudiag.facts.memory.device_memory import DeviceMemory

# A cause is named if it explains more than half of the growth.
CAUSE_SHARE = 0.5

# A second leak is worth its own fix from this share of the growth on. Below it are the batches that a graph
# keeps and the like.
SECOND_SHARE = 0.1

# Gradients with a graph of their own keep a forward and a backward pass. Each of the two is at least this
# share of the growth.
BOTH_SHARE = 0.1

# A hook keeps the outputs of one operator. A backward pass needs those of at least this many.
GRAPH_OPERATORS = 2

# An LSTM returns its outputs and two states. What it keeps beside them is a graph's.
RECURRENT_RESULTS = 3

# Of the tensors that a job keeps, its last step's may be in a graph that is freed later.
GRAPH_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Explained:
    """A cause, and the sites whose growth it explains, fastest first."""

    cause: LeakCause
    sites: list[GrowingSite]

    @property
    def per_unit(self) -> float:
        return sum(site.per_unit for site in self.sites)

    @property
    def bytes(self) -> int:
        """What the sites hold at the last floor."""
        return sum(site.bytes for site in self.sites)


@dataclass(frozen=True, eq=False)
class GrowingSites:
    """The allocation sites that raise a memory floor.

    Sites of a snapshot have no operators, so their stacks identify them.
    """

    sites: list[GrowingSite]
    memory: DeviceMemory

    def is_mostly(self, sites: Iterable[GrowingSite]) -> bool:
        """Whether these sites make up more than CAUSE_SHARE of the growth."""
        return self.share(sites) > CAUSE_SHARE

    def share(self, sites: Iterable[GrowingSite]) -> float:
        """Return how much of the growth is theirs, 0 to 1."""
        whole = sum(site.per_unit for site in self.sites)
        return sum(site.per_unit for site in sites) / max(1.0, whole)

    def main(self, sites: list[GrowingSite]) -> list[GrowingSite]:
        """These sites if the growth is mostly theirs, or else none."""
        return sites if self.is_mostly(sites) else []

    @property
    def replaced(self) -> list[GrowingSite]:
        """Sites whose tensors are replaced by larger ones."""
        return [site for site in self.sites if site.replaced]

    @property
    def joined(self) -> list[GrowingSite]:
        """Sites that replace tensors by concatenated or stacked ones; in a snapshot, by larger ones."""
        return [site for site in self.replaced if JOINS.fullmatch(site.operator) or not site.operator]

    @property
    def in_backward(self) -> list[GrowingSite]:
        return [site for site in self.sites if site.phase is Phase.BACKWARD]

    @property
    def gradients(self) -> list[GrowingSite]:
        """Sites of the backward pass, if half of the growth is theirs: the outputs have the other half."""
        return self.in_backward if self.share(self.in_backward) >= CAUSE_SHARE else []

    @property
    def outside_backward(self) -> list[GrowingSite]:
        return [site for site in self.sites if site.phase is not Phase.BACKWARD]

    @property
    def in_modules(self) -> list[GrowingSite]:
        """Sites in the forward pass of a module."""
        return [s for s in self.outside_backward if is_in_module(s) and not is_noted_leaf(s)]

    @property
    def in_graph(self) -> list[GrowingSite]:
        """Sites that a graph may hold: no copies that the job makes, no module outputs without a graph, no
        optimizer's state."""
        return [
            site
            for site in self.sites
            if not (site.replaced or is_own_copy(site) or has_no_graph(site))
            and site.phase is not Phase.OPTIMIZER
        ]

    @property
    def metrics(self) -> list[GrowingSite]:
        return [site for site in self.outside_backward if may_be_metric(site)]

    @property
    def keeps_loss(self) -> bool:
        return loss_of(self.sites) is not None


def loss_of(sites: list[GrowingSite]) -> GrowingSite | None:
    """Find a retained loss: the smallest single number that a loss or a sum allocated outside of backward.

    In a snapshot, which has no operators: any single number outside of modules.
    """
    losses = [
        site
        for site in sites
        if site.size_bytes <= SCALAR_BYTES
        and site.phase is not Phase.BACKWARD
        # A trace has the operator of a loss: others without one are Python's numbers.
        and (
            LOSS.fullmatch(site.operator) if site.operator else not (is_in_trace(site) or is_in_module(site))
        )
    ]
    return min(losses, key=lambda s: (s.size_bytes, "loss" not in s.operator, s.module), default=None)


def _graph(growth: GrowingSites) -> list[GrowingSite]:
    """What a graph holds, if it was noted that one grows, or else if what stays shows one. It is not noted
    which tensors of a GPU have a graph: if one grows, that is inferred for these."""
    grows = growth.memory.graph_grows
    if grows is False:
        return []
    if grows and growth.memory.is_noted:
        return _noted_graph(growth)
    signs = _keeps_both_passes, _keeps_results, _keeps_results_beside_modules
    return growth.in_graph if any(sign(growth) for sign in signs) else []


def _keeps_both_passes(growth: GrowingSites) -> bool:
    """What the backward pass allocated stays, and with it results of the forward pass. A hook keeps those of
    one operator, and their gradient. Parameters that are made anew have an optimizer's state as well."""
    results = [s for s in growth.in_graph if s.phase is not Phase.BACKWARD]
    forward = growth.share(site for site in results if may_have_graph(site))
    backward = growth.share(growth.in_backward)
    both = min(forward, backward) >= BOTH_SHARE and forward + backward > CAUSE_SHARE
    state = growth.share(site for site in growth.sites if site.phase is Phase.OPTIMIZER)
    return both and state < BOTH_SHARE and (growth.keeps_loss or _has_several_operators(results))


def _keeps_results(growth: GrowingSites) -> bool:
    """Modules allocated what stays: outputs of several operators, or outputs with a loss. Where both stay,
    what the modules were given may be larger than these."""
    in_modules = [site for site in growth.in_modules if site in growth.in_graph]
    several, share = _has_several_operators(in_modules), growth.share(in_modules)
    if several and growth.keeps_loss and share >= BOTH_SHARE:
        return growth.is_mostly(growth.in_graph)
    return share > CAUSE_SHARE and (several or growth.keeps_loss)


def _keeps_results_beside_modules(growth: GrowingSites) -> bool:
    """A loss stays with results of modules and of operators outside of them, which autograd records: a
    function of the job's own saved them. In a snapshot, which does not show what autograd records, that is
    one with a backward() of its own."""
    results = [s for s in growth.in_graph if s.grad_mode and s.size_bytes > SCALAR_BYTES]
    results += [s for s in growth.in_graph if FUNCTION_APPLY.search(s.stack) or is_in_module(s)]
    mixed = len(set(map(is_in_module, results))) > 1
    return mixed and growth.keeps_loss and growth.is_mostly(growth.in_graph)


def _outputs(growth: GrowingSites) -> list[GrowingSite]:
    """Modules allocated what stays: outputs of one operator, without a loss, or outputs without a graph."""
    return growth.main([site for site in growth.in_modules if not MAKES_STATE.fullmatch(site.within)])


def _metrics(growth: GrowingSites) -> list[GrowingSite]:
    """Small tensors stay that are not module outputs, batches, weights or optimizer state."""
    return growth.main(growth.metrics) if growth.memory.has_modules else []


def _noted_graph(growth: GrowingSites) -> list[GrowingSite]:
    """Graphs have more and more nodes, and with them goes most of what stays: it has a graph, or is only in
    one. Nodes that are large beside small tensors count as well."""
    found = [site for site in growth.sites if _is_noted_in_graph(site)]
    nodes, whole = growth.memory.others_per_step, sum(site.per_unit for site in growth.sites)
    mostly = sum(site.per_unit for site in found) + nodes > CAUSE_SHARE * (whole + nodes)
    return [s for s in growth.sites if s in found or s in growth.in_graph] if found and mostly else []


def _is_noted_in_graph(site: GrowingSite) -> bool:
    noted = site.noted
    only = noted.holder.in_graph >= GRAPH_SHARE
    return only or noted.attached >= NOTED_SHARE or noted.held < NOTED_SHARE


def _has_several_operators(sites: list[GrowingSite]) -> bool:
    """A snapshot shows an operator by what the outermost module calls, or by the user's innermost line: a
    model that several functions call, or a function with several callers, is the same. It has one stack for
    all operators of a recurrent layer."""
    called = {site.operator or inner_part(site.stack) for site in sites}
    many = any(RECURRENT.fullmatch(s.stack) and s.count_per_unit > RECURRENT_RESULTS for s in sites)
    return many or len(called) >= GRAPH_OPERATORS


_CAUSES: tuple[tuple[Callable[[GrowingSites], list[GrowingSite]], LeakCause], ...] = (
    (lambda growth: growth.main(growth.joined), CACHE),
    (lambda growth: growth.main(growth.replaced), LARGER),
    (_graph, GRAPH),
    (lambda growth: growth.gradients, GRADIENTS),
    (_outputs, HOOKS),
    (_metrics, METRICS),
)
"""Each returns the sites that it explains. The first that explains any names the cause."""


def causes_of(sites: list[GrowingSite], memory: DeviceMemory) -> list[Explained]:
    """Return the usual causes that fit these sites, the largest first; OTHER where none does.

    What the first cause leaves is a leak of its own, if it is at least SECOND_SHARE of the growth.
    """
    rest, found = list(sites), list[Explained]()
    least = SECOND_SHARE * sum(site.per_unit for site in sites)
    while rest and (not found or sum(site.per_unit for site in rest) >= least):
        one = _explained(GrowingSites(rest, memory))
        if one.cause in [known.cause for known in found]:
            break
        found.append(one)
        rest = [site for site in rest if site not in one.sites]
    # A hook that keeps a result keeps a gradient of the same size.
    return sorted(found, key=lambda one: (-one.per_unit, one.cause is GRADIENTS)) or [Explained(OTHER, [])]


def _explained(growth: GrowingSites) -> Explained:
    """The first cause that explains some of the sites, and those; OTHER with all of them if none does."""
    fits = (Explained(cause, explained(growth)) for explained, cause in _CAUSES)
    return next((one for one in fits if one.sites), Explained(OTHER, growth.sites))
