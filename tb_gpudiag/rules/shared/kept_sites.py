"""Whether a site's tensors stay, as far as notes and the calls of containers show it."""

from __future__ import annotations

from tb_gpudiag.facts.memory.containers import REMOVED_SHARE
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.vocabulary.container_calls import HOOKS, MODULES

# deque(maxlen=...) drops its oldest entry without a call. One from which entries are taken has no such limit.
RING, LIST = "deque", "list"

# Other functions that take entries out as often as this one adds them, within a quarter, may empty the same
# container. Those that do so more or less often have others.
AS_OFTEN = (REMOVED_SHARE, 1 / REMOVED_SHARE)

# Where tensors that were noted became more by this share of what a site keeps, the rest replaced others: two
# come, and one goes. A buffer that is halved now and then grows by a third in some recordings.
NOTED_KEPT = 0.5

# Of a recording of four steps or more, one may be on the wrong side of the moment when tensors were noted.
NOTED_REPLACED = 0.25

# Python holds what a site keeps if it holds this share of it: a step may be missing, as above.
NOTED_HELD = 0.75


# A leak holds what every step has kept since the job began. What holds less than half of that began later, or
# is dropped now and then, as at the end of an epoch.
KEPT_SINCE_START = 0.5


# A line keeps something of each step if there is one more for so many of the steps: see NOTED_REPLACED.
EACH_STEP = 0.75


def is_kept(site: GrowingSite) -> bool:
    """Whether tensors that were noted became more by as much as the site keeps, and did so from the start."""
    noted = site.noted
    return noted is not None and noted.low >= NOTED_KEPT and noted.since_start >= KEPT_SINCE_START


def is_replaced(site: GrowingSite) -> bool:
    """Whether Python holds what the site keeps, and about as many tensors of its sizes went."""
    noted = site.noted
    return noted is not None and noted.held >= NOTED_HELD and noted.high <= NOTED_REPLACED


def net_share(site: GrowingSite) -> float:
    """Share of what a site keeps by which tensors became more: the rest of them replaced others."""
    noted = site.noted
    known = noted is not None and noted.held >= NOTED_HELD and is_kept(site) and not site.replaced
    return noted.high / noted.held if noted is not None and known else 1.0


def is_filling(site: GrowingSite) -> bool:
    """Whether its container has a limit, and is not full."""
    return site.noted is not None and site.noted.holder is not None and site.noted.holder.limit > 0


def may_replace(site: GrowingSite) -> bool:
    """Whether the container may drop its oldest entry for each new one."""
    if is_kept(site) or is_replaced(site):
        return is_replaced(site)
    holder = site.holder
    # It may add numbers as well: of what stays, less than it removes cannot pile up.
    if holder is not None and holder.removed >= REMOVED_SHARE * min(holder.added, site.count):
        return True
    if holder is None or not holder.direct:
        return site.remover is not None
    if AS_OFTEN[0] * holder.added <= holder.removed_elsewhere <= AS_OFTEN[1] * holder.added:
        return True
    return may_have_limit(site)


def may_have_limit(site: GrowingSite) -> bool:
    """Whether a deque receives it that nothing is taken out of, and of which no limit was noted."""
    holder = site.holder
    if holder is None or not holder.direct or is_kept(site):
        return False
    return holder.type == RING and not holder.removed and not holder.removed_elsewhere


def is_from_steps(site: GrowingSite) -> bool:
    """Whether a buffer of it is hardly ever full before the job's first step: a module, autograd or an
    optimizer computes it, or a list receives it that nothing is taken out of. Most rings are deques, or are
    assigned by number or key."""
    if site.module or site.phase in (Phase.BACKWARD, Phase.OPTIMIZER):
        return True
    held = site.holder
    if held is None or not held.direct or held.type != LIST:
        return False
    return not held.removed and not held.removed_elsewhere


def is_boundless(site: GrowingSite) -> bool:
    """Whether it is noted to be kept, or a container receives it that gives entries back through calls only,
    and there are none: hooks, modules, or a set of tensors. A set or a heap of numbers may be filled just
    after an assignment that keeps the tensor, which no recording shows."""
    if is_kept(site):
        return True
    held = site.holder
    if held is None or not held.direct or not (held.hashes or held.type in (HOOKS, MODULES)):
        return False
    return not held.removed and not held.removed_elsewhere
