"""What holds a leak: the container that receives what a site allocates, as far as calls show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tb_gpudiag.facts.memory.containers import REMOVED_SHARE, Holder
from tb_gpudiag.facts.memory.noted_tensors import NotedHolder
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.answer import Place, place_at
from tb_gpudiag.rules.shared.leak_causes import GRAPH, Explained, loss_of, makes_loss
from tb_gpudiag.vocabulary.container_calls import HOOKS, MODULES
from tb_gpudiag.vocabulary.frames import Frame, LineKind, place_frame
from tb_gpudiag.vocabulary.torch_frames import MODULE_CALL
from tb_gpudiag.wording.format import count

# deque(maxlen=...) drops its oldest entry without a call. One from which entries are taken has no such limit.
RING = "deque"

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


def holders_of(sites: Iterable[GrowingSite]) -> list[Holder]:
    """Return the containers that receive what these sites allocate, in the order of the sites."""
    return list(dict.fromkeys(site.holder for site in sites if site.holder is not None))


def keeping_frame(part: Explained) -> Frame | None:
    """Return what keeps a leak, if the recording shows that: the function that fills a container or reaches
    what was noted to be held, the line of the loss that holds a graph, or what calls all that allocates."""
    held, loss = holders_of(part.sites)[:1], retained_loss(part)
    if held and held[0].direct:
        return held[0].frame
    if reaches := _noted_frame(part.sites):
        return reaches
    if held:
        return held[0].frame
    if loss is not None and loss.frame is not None:
        return loss.frame
    return _shared_place(part.sites)


def _noted_frame(sites: Iterable[GrowingSite]) -> Frame | None:
    """Return the innermost function around most of the allocations that reaches what holds them. The one that
    allocates may only return them. Of one holder, those count that have a function nearest to it around."""
    held = dict[NotedHolder, dict[tuple[int, Frame], float]]()
    for site in sites:
        holder = site.noted.holder if site.noted is not None else None
        if holder is not None and (found := holder.innermost(site.stack)):
            levels = held.setdefault(holder, {})
            levels[found] = levels.get(found, 0.0) + site.per_unit
    nearest = dict[Frame, float]()
    for levels in held.values():
        least = min(level for level, _ in levels)
        for (level, frame), rate in levels.items():
            if level == least:
                nearest[frame] = nearest.get(frame, 0.0) + rate
    return max(nearest, key=lambda frame: nearest[frame], default=None)


def retained_loss(part: Explained) -> GrowingSite | None:
    """Return the loss that holds a graph, or what it is computed from at the same line."""
    if part.cause is not GRAPH:
        return None
    return loss_of(part.sites) or next(filter(makes_loss, part.sites), None)


# What stays beside a site and is a tenth of it, or less, says nothing about what keeps it.
_LEAST_BESIDE = 0.1


def _shared_place(sites: Sequence[GrowingSite]) -> Frame | None:
    """Return the innermost function of the user's that calls what different functions allocated and what
    stays equally often: it keeps it, or hands it on. It is outside of modules, which keep no results of each
    other. None for a single function."""
    alike = [site for site in sites[:1] if site.frame is not None]
    alike += [
        s
        for s in sites[1:]
        if alike
        and s.frame is not None
        and s.count == alike[0].count
        and s.bytes >= _LEAST_BESIDE * alike[0].bytes
    ]
    if len({site.frame for site in alike}) < 2:
        return None
    stacks = [site.stack.split("\n") for site in alike]
    shared = [lines[0] for lines in zip(*stacks, strict=False)]
    while shared and not all(lines[: len(shared)] == shared for lines in stacks):
        shared.pop()
    shared = shared[: next((i for i, line in enumerate(shared) if MODULE_CALL.fullmatch(line)), len(shared))]
    kind = alike[0].frame.line_kind if alike[0].frame is not None else LineKind.UNKNOWN
    frames = (place_frame(line, kind) for line in reversed(shared))
    return next((frame for frame in frames if frame is not None), None)


def call_of_holder(holder: Holder) -> str:
    """`list.append in collect (train.py, defined at line 7)`."""
    return f"{holder.type}.{holder.method} {holder.frame.preposition} {holder.frame}"


def filling_sentence(holder: Holder) -> str:
    """Say who fills the container, and whether anything is taken out of it."""
    removed = count(holder.removed, "entry", "entries") if holder.removed else "nothing"
    added = count(holder.added, "entry", "entries")
    receives = "receives it" if holder.direct else "is called next, and may receive it"
    less = ", so that memory grows by less than it seems" if holder.removed and holder.direct else ""
    return f"{call_of_holder(holder)} {receives}: that function added {added} and removed {removed}{less}."


def _in_turn(parts: list[Explained]) -> list[GrowingSite]:
    """Return the largest site of each cause, then the others, fastest first."""
    first = [part.sites[0] for part in parts if part.sites]
    others = [site for part in parts for site in part.sites if site not in first]
    return [*first, *sorted(others, key=lambda site: -site.per_unit)]


def places_of(parts: list[Explained]) -> list[Place]:
    """Where it is kept, if the recording shows that: the call that fills a container, or the loss that holds
    a graph. Then where it is allocated."""
    sites = _in_turn(parts)
    loss, kept_at = retained_loss(parts[0]), keeping_frame(parts[0])
    if kept_at is None:
        first = []
    elif loss is not None and loss.frame == kept_at:
        first = [_place(loss)]
    else:
        first = [place_at(kept_at, bytes=round(parts[0].bytes))]
    return first + [place for site in sites if (place := _place(site)) not in first]


def _place(site: GrowingSite) -> Place:
    return place_at(site.frame, operator=site.operator, bytes=site.bytes)
