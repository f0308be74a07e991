"""The usual causes of a leak: how each is recognised by what stays, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.trace.vocabulary.operators import JOINS, LOSS
from tb_gpudiag.trace.vocabulary.torch_frames import MODULE_FRAME

# A cause is named when it makes up half of what grows,
CAUSE_SHARE = 0.5

# numbers for a progress bar, a confusion matrix: what is kept of a metric is no larger than this,
METRIC_BYTES = 64 * 2**10

# a loss is one number, for which the allocator takes a block of 512 bytes (the CPU's: a few bytes),
SCALAR_BYTES = 512

# and one operator's outputs, kept, are a hook's; those of so many are what a backward pass would need.
GRAPH_OPERATORS = 2


@dataclass(frozen=True)
class Cause:
    """A usual cause of a leak: how it is called, what it is, and what to do about it."""

    name: str
    summary: str
    fix: str
    code: str
    url: str = "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory"


GRAPH = Cause(
    "a kept graph",
    "The activations of whole forward passes stay: something, such as a list, keeps a loss or an output with "
    "its graph, or the graph is retained.",
    "Keep numbers instead of tensors that have a graph; compute what needs no gradients under "
    "torch.no_grad(); do without retain_graph=True.",
    """losses.append(loss.detach())        # not: losses.append(loss), total = total + loss
with torch.no_grad():               # evaluation, logging
    validation_loss = criterion(model(batch), target)
loss.backward()                     # not: loss.backward(retain_graph=True)""",
)
CACHE = Cause(
    "a growing cache",
    "Tensors are put together with new rows in every step, and replaced by the larger result: a cache, such "
    "as keys and values of attention, that nothing cuts off.",
    "Give the cache an end: drop what is old, or allocate it once at its full size and write into it.",
    """cache = torch.cat([cache, new], dim=1)[:, -max_length:]   # drops what is too old
# or once, at its full size:
cache = torch.empty(batch, max_length, width, device=device)
cache[:, position] = new
# Transformers: a new cache for every sequence, past_key_values=None; or
model.generate(**inputs, cache_implementation="static")""",
    "https://huggingface.co/docs/transformers/kv_cache",
)
HOOKS = Cause(
    "outputs of a module that are kept",
    "The outputs of one kind of module stay, and no loss does: a forward hook, the module itself, or a list "
    "of results keeps what it gives.",
    "Remove the hook when it has done its work, and keep what is needed of the last step only, on the host. "
    "Write the results of an evaluation to disk, or keep numbers of them.",
    """def keep(module, inputs, output):
    features[module] = output.detach().cpu()   # replaces the last step's, and has no graph

handle = layer.register_forward_hook(keep)
try:
    model(batch)
finally:
    handle.remove()

correct += (model(batch).argmax(1) == target).sum()   # not: outputs.append(model(batch))""",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",
)
LARGER = Cause(
    "tensors that become larger",
    "Tensors are replaced by larger ones in every step, evenly: a buffer that grows, or batches that do.",
    "Give the buffer an end, or allocate it once at its full size. Batches or sequences that grow on purpose "
    "are no leak: make sure that the largest one fits.",
    """buffer = torch.empty(most_rows, width, device=device)   # once, at its full size
buffer[position] = new""",
)
GRADIENTS = Cause(
    "gradients that are kept",
    "What stays was made in the backward pass: gradients that something keeps beside the parameters, or "
    "gradients with a graph of their own (create_graph=True).",
    "Keep a number of each gradient instead of the gradient; without create_graph=True gradients have no "
    "graph.",
    """norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
loss.backward()                          # not: create_graph=True, retain_graph=True
optimizer.zero_grad(set_to_none=True)    # the default: lets go of the gradients""",
    "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html",
)
METRICS = Cause(
    "small tensors that are kept",
    "Small tensors are made outside of the model's modules, and all of them stay: most often metrics of each "
    "step, which a list keeps as tensors.",
    "Add up one tensor in place, and bring it to the host once in many steps.",
    """total += loss.detach()               # one tensor, in place: not metrics.append(loss)
if step % 100 == 0:
    print((total / 100).item())
    total.zero_()""",
)
OTHER = Cause(
    "",
    "Something keeps what this code allocates: a list, a dictionary, an attribute, a closure.",
    "Look for what holds the tensors of this line, and let go of them: keep the last ones only, or keep them "
    "on the host or on disk.",
    """kept = collections.deque(maxlen=100)   # in place of a list: lets go of the oldest
kept.append(features.detach().cpu())   # or off the GPU""",
)


def loss_of(sites: list[GrowingSite]) -> GrowingSite | None:
    """What is one number each time, made by a loss or a sum: the smallest, named so, outside of modules."""
    losses = [
        site
        for site in sites
        if site.size_bytes <= SCALAR_BYTES
        and site.phase is not Phase.BACKWARD
        and LOSS.fullmatch(site.operator)
    ]
    return min(losses, key=lambda s: (s.size_bytes, "loss" not in s.operator, s.module), default=None)


def cause_of(sites: list[GrowingSite], *, with_modules: bool) -> Cause:
    """The usual cause that the sites' evidence speaks for, or OTHER. with_modules: Python frames were
    recorded, and so the modules that allocations were made in. The sites of a snapshot have no operators:
    their stacks stand in for them."""
    whole = sum(site.per_unit for site in sites)

    def most(some: list[GrowingSite]) -> bool:
        return sum(site.per_unit for site in some) > CAUSE_SHARE * whole

    backward = [site for site in sites if site.phase is Phase.BACKWARD]
    others = [site for site in sites if site.phase is not Phase.BACKWARD]
    replaced = [site for site in sites if site.replaced]
    if most([site for site in replaced if JOINS.fullmatch(site.operator) or not site.operator]):
        return CACHE
    if most(replaced):
        return LARGER
    if most(backward):
        return GRADIENTS
    has_loss = loss_of(others) is not None
    if not with_modules:
        operators = {site.operator for site in others}
        return GRAPH if has_loss and len(operators) > GRAPH_OPERATORS else OTHER
    forward = [site for site in others if _is_in_module(site)]
    if most(forward):
        operators = {site.operator or site.stack for site in forward}
        return GRAPH if has_loss or len(operators) >= GRAPH_OPERATORS else HOOKS
    return METRICS if most([site for site in others if _may_be_metric(site)]) else OTHER


def _may_be_metric(site: GrowingSite) -> bool:
    """Small, of no module, no batch, no weight and no state of an optimizer."""
    told = site.phase in {Phase.INPUT, Phase.PARAMETER, Phase.OPTIMIZER}
    return site.size_bytes <= METRIC_BYTES and not _is_in_module(site) and not told


def _is_in_module(site: GrowingSite) -> bool:
    return bool(site.module) or MODULE_FRAME.search(site.stack) is not None
