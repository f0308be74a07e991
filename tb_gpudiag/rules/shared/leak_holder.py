"""What holds a leak: the container that receives what a site allocates, as far as calls show it."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.facts.memory.containers import Holder
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.wording.format import count

# A function that takes an entry out of a container about as often as it puts one in keeps its size. One that
# clears it now and then calls once for many.
REMOVED_SHARE = 0.5

# deque(maxlen=...) drops its oldest entry without a call.
RING = "deque"


def may_replace(site: GrowingSite) -> bool:
    """Whether the container may drop its oldest entry for each new one."""
    holder = site.holder
    if holder is None:
        return False
    return holder.type == RING or holder.removed >= REMOVED_SHARE * holder.added


def holders_of(sites: Iterable[GrowingSite]) -> list[Holder]:
    """Return the containers that receive what these sites allocate, in the order of the sites."""
    return list(dict.fromkeys(site.holder for site in sites if site.holder is not None))


def call_of_holder(holder: Holder) -> str:
    """`list.append in collect (train.py, defined at line 7)`."""
    return f"{holder.type}.{holder.method} {holder.frame.preposition} {holder.frame}"


def filling_sentence(holder: Holder) -> str:
    """Say who fills the container, and whether anything is taken out of it."""
    removed = count(holder.removed, "entry", "entries") if holder.removed else "nothing"
    added = count(holder.added, "entry", "entries")
    return f"{call_of_holder(holder)} receives it: that function added {added} and removed {removed}."
