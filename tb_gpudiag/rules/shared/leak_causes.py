"""The usual causes of a memory leak: how to recognize each by what stays in memory, and how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.trace.vocabulary.operators import JOINS, LOSS
from tb_gpudiag.trace.vocabulary.torch_frames import MODULE_FRAME

# A cause is named if it explains more than half of the growth.
CAUSE_SHARE = 0.5

# Metrics that jobs keep, such as values for a progress bar or a confusion matrix, are no larger than this.
METRIC_BYTES = 64 * 2**10

# A loss is one number. The GPU's allocator takes a block of 512 bytes for it, the CPU's a few bytes.
SCALAR_BYTES = 512

# A hook keeps the outputs of one operator. A backward pass needs those of at least this many.
GRAPH_OPERATORS = 2


@dataclass(frozen=True)
class LeakCause:
    """A usual cause of a leak: its name, an explanation and a fix."""

    name: str
    summary: str
    fix: str
    code: str
    url: str = "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory"


GRAPH = LeakCause(
    "retained autograd graph",
    "The activations of whole forward passes stay allocated. Something, such as a list, holds a loss or an "
    "output together with its graph, or the graph is retained.",
    "Keep numbers instead of tensors with a graph, run what needs no gradients under torch.no_grad(), and "
    "avoid retain_graph=True.",
    """losses.append(loss.detach())        # not: losses.append(loss), total = total + loss
with torch.no_grad():               # evaluation, logging
    validation_loss = criterion(model(batch), target)
loss.backward()                     # not: loss.backward(retain_graph=True)""",
)
CACHE = LeakCause(
    "growing cache",
    "Every step concatenates tensors with new rows and replaces them by the larger result: a cache without a "
    "limit, such as the keys and values of attention.",
    "Limit the cache: drop old entries, or allocate it once at its full size and write into it.",
    """cache = torch.cat([cache, new], dim=1)[:, -max_length:]   # drops the oldest entries
# or once, at its full size:
cache = torch.empty(batch, max_length, width, device=device)
cache[:, position] = new
# Transformers: a new cache for every sequence, past_key_values=None; or
model.generate(**inputs, cache_implementation="static")""",
    "https://huggingface.co/docs/transformers/kv_cache",
)
HOOKS = LeakCause(
    "retained module outputs",
    "The outputs of one kind of module stay allocated, but no loss does. A forward hook, the module itself "
    "or a list of results holds them.",
    "Remove the hook when it is no longer needed, and keep only what you need of the last step, on the host. "
    "Write evaluation results to disk, or keep numbers instead of outputs.",
    """def keep(module, inputs, output):
    features[module] = output.detach().cpu()   # replaces the last step's output, and has no graph

handle = layer.register_forward_hook(keep)
try:
    model(batch)
finally:
    handle.remove()

correct += (model(batch).argmax(1) == target).sum()   # not: outputs.append(model(batch))""",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",
)
LARGER = LeakCause(
    "growing tensors",
    "Every step replaces tensors by larger ones, always by the same amount: a buffer grows, or batches do.",
    "Limit the buffer, or allocate it once at its full size. If batches or sequences grow on purpose, this "
    "is not a leak: make sure that the largest one fits.",
    """buffer = torch.empty(most_rows, width, device=device)   # once, at its full size
buffer[position] = new""",
)
GRADIENTS = LeakCause(
    "retained gradients",
    "The backward pass allocated what stays: something holds gradients in addition to the parameters, or "
    "gradients have a graph of their own (create_graph=True).",
    "Keep a number per gradient instead of the gradient, and avoid create_graph=True, which gives gradients "
    "a graph.",
    """norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
loss.backward()                          # not: create_graph=True, retain_graph=True
optimizer.zero_grad(set_to_none=True)    # the default: frees the gradients""",
    "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html",
)
METRICS = LeakCause(
    "retained small tensors",
    "Small tensors allocated outside of the model's modules all stay. Usually a list collects the metrics of "
    "each step as tensors.",
    "Accumulate into one tensor in place, and copy it to the host once every many steps.",
    """total += loss.detach()               # one tensor, in place: not metrics.append(loss)
if step % 100 == 0:
    print((total / 100).item())
    total.zero_()""",
)
OTHER = LeakCause(
    "",
    "Something keeps what this code allocates: a list, a dictionary, an attribute, a closure.",
    "Find what holds the tensors that this line allocates. Keep only the last ones, or move them to the host "
    "or to disk.",
    """kept = collections.deque(maxlen=100)   # instead of a list: drops the oldest
kept.append(features.detach().cpu())   # or off the GPU""",
)


@dataclass(frozen=True)
class Growth:
    """The allocation sites that raise a memory floor.

    has_modules: Python frames were recorded, and with them the modules that allocated. Sites of a snapshot
    have no operators, so their stacks identify them.
    """

    sites: list[GrowingSite]
    has_modules: bool

    def is_mostly(self, sites: Iterable[GrowingSite]) -> bool:
        """Whether these sites make up more than CAUSE_SHARE of the growth."""
        whole = sum(site.per_unit for site in self.sites)
        return sum(site.per_unit for site in sites) > CAUSE_SHARE * whole

    @property
    def replaced(self) -> list[GrowingSite]:
        """Sites whose tensors are replaced by larger ones."""
        return [site for site in self.sites if site.replaced]

    @property
    def outside_backward(self) -> list[GrowingSite]:
        return [site for site in self.sites if site.phase is not Phase.BACKWARD]

    @property
    def in_modules(self) -> list[GrowingSite]:
        """Sites in the forward pass of a module."""
        return [site for site in self.outside_backward if _is_in_module(site)]

    @property
    def keeps_loss(self) -> bool:
        return loss_of(self.sites) is not None


def loss_of(sites: list[GrowingSite]) -> GrowingSite | None:
    """Find a retained loss: the smallest single number that a loss or a sum allocated outside of backward."""
    losses = [
        site
        for site in sites
        if site.size_bytes <= SCALAR_BYTES
        and site.phase is not Phase.BACKWARD
        and LOSS.fullmatch(site.operator)
    ]
    return min(losses, key=lambda s: (s.size_bytes, "loss" not in s.operator, s.module), default=None)


def _is_growing_cache(growth: Growth) -> bool:
    """Concatenated or stacked tensors (in a snapshot: tensors of any line) are replaced by larger ones."""
    return growth.is_mostly(s for s in growth.replaced if JOINS.fullmatch(s.operator) or not s.operator)


def _is_growing_tensors(growth: Growth) -> bool:
    """Results of any operators are replaced by larger ones."""
    return growth.is_mostly(growth.replaced)


def _is_retained_gradients(growth: Growth) -> bool:
    """The backward pass allocated what stays."""
    return growth.is_mostly(site for site in growth.sites if site.phase is Phase.BACKWARD)


def _is_retained_graph(growth: Growth) -> bool:
    """Modules allocated what stays: outputs of several operators, or outputs with a loss."""
    if not growth.has_modules or not growth.is_mostly(growth.in_modules):
        return False
    operators = {site.operator or site.stack for site in growth.in_modules}
    return growth.keeps_loss or len(operators) >= GRAPH_OPERATORS


def _is_retained_graph_without_modules(growth: Growth) -> bool:
    """Modules are unknown, and a loss stays with the outputs of several other operators."""
    operators = {site.operator for site in growth.outside_backward}
    return not growth.has_modules and growth.keeps_loss and len(operators) > GRAPH_OPERATORS


def _is_retained_outputs(growth: Growth) -> bool:
    """Modules allocated what stays: the outputs of one operator, without a loss."""
    return growth.has_modules and growth.is_mostly(growth.in_modules)


def _is_retained_metrics(growth: Growth) -> bool:
    """Small tensors stay that are not module outputs, batches, weights or optimizer state."""
    return growth.has_modules and growth.is_mostly(s for s in growth.outside_backward if _may_be_metric(s))


def _may_be_metric(site: GrowingSite) -> bool:
    has_purpose = site.phase in {Phase.INPUT, Phase.PARAMETER, Phase.OPTIMIZER}
    return site.size_bytes <= METRIC_BYTES and not _is_in_module(site) and not has_purpose


def _is_in_module(site: GrowingSite) -> bool:
    """Whether a module allocated it. In a snapshot's stacks modules have no frames of their own."""
    return bool(site.module) or MODULE_FRAME.search(site.stack) is not None


_DETECTORS: tuple[tuple[Callable[[Growth], bool], LeakCause], ...] = (
    (_is_growing_cache, CACHE),
    (_is_growing_tensors, LARGER),
    (_is_retained_gradients, GRADIENTS),
    (_is_retained_graph, GRAPH),
    (_is_retained_graph_without_modules, GRAPH),
    (_is_retained_outputs, HOOKS),
    (_is_retained_metrics, METRICS),
)
"""The first that matches names the cause."""


def cause_of(sites: list[GrowingSite], *, has_modules: bool) -> LeakCause:
    """Return the usual cause that fits these sites, or OTHER."""
    growth = Growth(sites, has_modules)
    return next((cause for matches, cause in _DETECTORS if matches(growth)), OTHER)
