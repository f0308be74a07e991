"""What the tensors of an allocation site are: metrics, copies of the job's own, results in modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.vocabulary.operators import OWN_COPY, SAMPLES, SUMS_UP
from tb_gpudiag.vocabulary.torch_frames import MODULE_FRAME

if TYPE_CHECKING:
    from tb_gpudiag.facts.memory.sites import GrowingSite

# Metrics that jobs keep, such as values for a progress bar or a confusion matrix of 64 classes in 64 bits,
# are no larger than this. Batches, predictions and states are.
METRIC_BYTES = 32 * 2**10

# Above this size, which a number for each of 512 classes has, only what sums up or counts makes a metric:
# others make masks, samples, maps of attention, or states.
SUMMED_UP_BYTES = 4 * 2**10

# The same in a snapshot, which does not say what counts: 1,000 classes have 64-bit counts of this size.
COUNTED_BYTES = 8 * 2**10

# A loss is one number. The GPU's allocator takes a block of 512 bytes for it, the CPU's a few bytes.
SCALAR_BYTES = 512

# One line that copies so many tensors in each step copies weights, not a metric.
WEIGHTS_COPIED = 2

# Tensors of a site have a graph, or are leaves, or are not Python's, if so much of what it keeps is noted so.
NOTED_SHARE = 0.5


def is_noted_leaf(site: GrowingSite) -> bool:
    """Whether it is noted to need gradients without a graph: it was made to be trained, not computed."""
    return site.noted.leaf >= NOTED_SHARE


def may_be_metric(site: GrowingSite) -> bool:
    """Whether it is small, and made for nothing else: no weights, batches, samples or results of modules."""
    has_purpose = site.phase in {Phase.INPUT, Phase.PARAMETER, Phase.OPTIMIZER}
    has_purpose |= is_in_module(site) or is_noted_leaf(site)
    return site.size_bytes <= _most_of_metric(site) and not has_purpose


def _most_of_metric(site: GrowingSite) -> int:
    """How large a metric may be that this site makes. A snapshot does not say what sums up or counts, and a
    line that makes several tensors in each step may make states. What deepcopy() copies in a trace has no
    operator."""
    several = site.count_per_unit >= WEIGHTS_COPIED
    if (several and is_own_copy(site)) or SAMPLES.fullmatch(site.operator):
        return SCALAR_BYTES
    if not is_in_trace(site) and not site.operator:
        return SCALAR_BYTES if several else COUNTED_BYTES
    sums_up = not site.operator or SUMS_UP.fullmatch(site.within) is not None
    return METRIC_BYTES if sums_up else SUMMED_UP_BYTES


def is_own_copy(site: GrowingSite) -> bool:
    """Whether the job's own code copies tensors here. A graph holds what modules and losses compute. In a
    trace, what deepcopy() copies has no operator: it is a storage."""
    copies = OWN_COPY.fullmatch(site.operator) if site.operator else is_in_trace(site)
    return bool(copies) and not is_in_module(site)


def has_no_graph(site: GrowingSite) -> bool:
    """Whether a module computed it while autograd was off. Outside of modules, operators such as `aten::rand`
    are never recorded, and a graph keeps their results anyway."""
    return site.grad_mode is False and is_in_module(site)


def may_have_graph(site: GrowingSite) -> bool:
    """Whether autograd gives it a node. A snapshot has no operators, and does not say."""
    return bool(site.grad_mode) or is_in_module(site) or (site.grad_mode is None and not site.operator)


def is_in_module(site: GrowingSite) -> bool:
    """Whether a module allocated it. In a snapshot's stacks modules have no frames of their own."""
    return bool(site.module) or MODULE_FRAME.search(site.stack) is not None


def is_in_trace(site: GrowingSite) -> bool:
    """Whether operators were recorded, as a trace's frames show, which have the line of their definition."""
    return site.frame is not None and site.frame.line_kind is LineKind.DEFINITION
