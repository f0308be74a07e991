"""What holds a leak: the container that receives what a site allocates, as far as calls show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from tb_gpudiag.facts.memory.containers import Holder
from tb_gpudiag.facts.memory.noted_tensors import NotedHolder
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.answer import Place, place_at
from tb_gpudiag.rules.shared.leak_causes import Explained, loss_of
from tb_gpudiag.rules.shared.usual_causes import GRAPH
from tb_gpudiag.vocabulary.frames import Frame, LineKind, innermost_place, parse_frame, place_frame
from tb_gpudiag.vocabulary.torch_frames import calls_module, inner_part, outermost_caller
from tb_gpudiag.wording.format import count


def holders_of(sites: Iterable[GrowingSite]) -> list[Holder]:
    """Return the containers that receive what these sites allocate, in the order of the sites."""
    return list(dict.fromkeys(site.holder for site in sites if site.holder is not None))


def keeping_frame(part: Explained, *beside: Explained) -> Frame | None:
    """Return what keeps a leak, if the recording shows that: the function that fills a container or reaches
    what was noted to be held, the line of the loss that holds a graph, or what calls all that allocates, also
    what stays `beside` it."""
    return next(filter(None, _keepers(part, *beside)), None)


def _keepers(part: Explained, *beside: Explained) -> Iterator[Frame | None]:
    """Yield what may keep it, what shows it best first."""
    held, loss = holders_of(part.sites)[:1], retained_loss(part)
    yield from (holder.frame for holder in held if holder.direct)
    yield _noted_frame(part.sites)
    yield from (holder.frame for holder in held)
    yield loss.frame if loss is not None else None
    yield _shared_place([site for one in (part, *beside) for site in one.sites])


def _noted_frame(sites: Iterable[GrowingSite]) -> Frame | None:
    """Return the function that reaches what holds most of the allocations, and is around them or keeps them.
    The one that allocates may only return them. Of one holder, those count that have a function nearest to
    it."""
    held = dict[NotedHolder, dict[tuple[int, Frame], float]]()
    for site in sites:
        noted = site.noted
        if noted.keeper is not None:
            levels = held.setdefault(noted.holder, {})
            levels[noted.keeper] = levels.get(noted.keeper, 0.0) + site.per_unit
    nearest = dict[Frame, float]()
    for levels in held.values():
        least = min(level for level, _ in levels)
        for (level, frame), rate in levels.items():
            if level == least:
                nearest[frame] = nearest.get(frame, 0.0) + rate
    return max(nearest, key=lambda frame: nearest[frame], default=None)


def retained_loss(part: Explained) -> GrowingSite | None:
    """Return the loss that holds a graph."""
    if part.cause is not GRAPH:
        return None
    return loss_of(part.sites)


# What stays beside a site and is a tenth of it, or less, says nothing about what keeps it.
_LEAST_BESIDE = 0.1


def _shared_place(sites: Sequence[GrowingSite]) -> Frame | None:
    """Return the innermost function of the user's that calls what different functions allocated and what
    stays equally often, or what one model allocated: it keeps it, or hands it on. It is outside of modules,
    which keep no results of each other. None for a single function."""
    known = [site for site in sites if site.frame is not None]
    alike = [site for site in known if _is_kept_with(site, known[0])]
    if len({_function(innermost_place(site.stack) or site.frame) for site in alike}) < 2:
        return None
    kind = alike[0].frame.line_kind if alike[0].frame is not None else LineKind.UNKNOWN
    stacks = [_up_to_frame(site, kind) for site in sorted(alike, key=lambda site: -site.moment)]
    frames = (place_frame(line, kind) for line in reversed(_shared_lines(stacks, kind)))
    return next(filter(None, frames), None)


def _shared_lines(stacks: list[list[str]], kind: LineKind) -> list[str]:
    """Return the functions that stacks share, outermost first. The last one may run different lines: it has
    the first stack's."""
    shared = list[str]()
    for lines in zip(*stacks, strict=False):
        if len({_function(parse_frame(line, kind)) or line for line in lines}) > 1:
            break
        shared.append(lines[0])
        if len(set(lines)) > 1:
            break
    return shared


def _is_kept_with(site: GrowingSite, first: GrowingSite) -> bool:
    """Whether what stays of a site is about as much as of the first one, and as often, or from its model.
    The last step's may be in use still."""
    if site is first:
        return True
    often = site.count == first.count or (not site.operator and site.count_per_unit == first.count_per_unit)
    one_model = (
        not site.operator
        and outermost_caller(site.stack)
        and inner_part(site.stack) == inner_part(first.stack)
    )
    return (often or bool(one_model)) and site.bytes >= _LEAST_BESIDE * first.bytes


def _function(frame: Frame | None) -> tuple[str, str, int] | None:
    """Return what identifies a function: where only the line that ran is known, all its lines."""
    if frame is None:
        return None
    return frame.file, frame.function, frame.line if frame.line_kind is LineKind.DEFINITION else 0


def _up_to_frame(site: GrowingSite, kind: LineKind) -> list[str]:
    """Return a site's stack up to the line that decides what stays, or up to a module."""
    lines = list(takewhile(lambda line: not calls_module(line), site.stack.split("\n")))
    decides = (i for i in range(len(lines) - 1, -1, -1) if place_frame(lines[i], kind) == site.frame)
    return lines[: next(decides, len(lines)) + 1]


def call_of_holder(holder: Holder) -> str:
    """`list.append in collect (train.py, defined at line 7)`."""
    return f"{holder.type}.{holder.method} {holder.frame.where}"


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
    a graph. Then where it is allocated, as far as that is known."""
    sites = _in_turn(parts)
    sites = [site for site in sites if site.frame is not None or site.operator] or sites
    loss, kept_at = retained_loss(parts[0]), keeping_frame(*parts)
    if kept_at is None:
        first = []
    elif loss is not None and loss.frame == kept_at:
        first = [_place(loss)]
    else:
        first = [place_at(kept_at, bytes=round(parts[0].bytes))]
    made = list(map(_place, sites))
    return first + [place for place in made if place not in first]


def _place(site: GrowingSite) -> Place:
    return place_at(site.frame, operator=site.operator, bytes=site.bytes)
