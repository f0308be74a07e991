"""Containers: which of Python's lists, dicts, sets and deques receives what a line allocates.

With stacks, a trace has a call such as `<built-in method append of list object at 0x...>` inside the function
that calls it. That function contains the allocation, too, or calls what allocates.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.api_calls import ADDS, REMOVES, TORCH_CALLS, call_of
from tb_gpudiag.vocabulary.frames import ANY_FRAME, Frame, place_frame
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import MODULE_CALL

MOST_LOOKED_AT = 64
"""Calls after an allocation that may be the one that keeps it: a step's function fills few containers."""

LEAST_SHARE = 0.5
"""A holder receives at least this share of a site's allocations."""


@dataclass(frozen=True)
class Holder:
    """A kind of container that one function fills with what a site allocates.

    added, removed: calls of that function on such containers, over the recording. removed_elsewhere: calls of
        the user's other functions that take an entry out of such a container.
    direct: the function allocates, or calls what does. If not, it is only called next, and may receive it.
    """

    type: str  # list, deque, dict, ...
    method: str  # append, ...
    frame: Frame  # of the calling function
    added: int
    removed: int
    removed_elsewhere: int
    direct: bool


class Containers:
    """The calls of the user's own functions that fill and empty containers."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def holder(self, times_ns: Int64, thread: Int32) -> Holder | None:
        """Return what receives most of the allocations that were made at these times on these threads."""
        found = self._adding(times_ns, thread, self._within)
        direct = (found != NONE).sum() >= LEAST_SHARE * len(times_ns)
        if not direct:
            found = self._adding(times_ns, thread, self._beside)
        found = found[found != NONE]
        if not len(found):
            return None
        (kind, caller, _), _ = Counter(map(self._key, found.tolist())).most_common(1)[0]
        same = [i for i in found.tolist() if self._key(i)[:2] == (kind, caller)]
        frame = self._host.frame(caller)
        if len(same) < LEAST_SHARE * len(times_ns) or frame is None:
            return None
        if not direct and self._are_modules_own(np.array(same, np.int64)):
            return None
        removed = self._count(self._removes, kind, caller)
        return Holder(
            type=kind,
            method=self._key(same[0])[2],
            frame=frame,
            added=self._count(self._adds, kind, caller),
            removed=removed,
            removed_elsewhere=sum(self._key(i)[0] == kind for i in self._removes.tolist()) - removed,
            direct=bool(direct),
        )

    def _adding(self, times_ns: Int64, thread: Int32, around: Int64) -> Int64:
        """Return the first call after each time that adds to a container, while the function around it was
        running at that time; NONE without one. around: of each of `_adds`. Shape of `times_ns`."""
        events, adds, found = self._host.events, self._adds, np.full(len(times_ns), NONE, np.int64)
        start = events.start_ns[adds]
        around_start = np.where(around == NONE, np.iinfo(np.int64).max, self._host.tree.start_ns[around])
        first = np.searchsorted(start, times_ns)
        for ahead in range(MOST_LOOKED_AT):
            open_ = np.flatnonzero((found == NONE) & (first + ahead < len(adds)))
            if not len(open_):
                break
            at = first[open_] + ahead
            holds = (around_start[at] <= times_ns[open_]) & (events.thread[adds[at]] == thread[open_])
            found[open_[holds]] = adds[at[holds]]
        return found

    @cached_property
    def _within(self) -> Int64:
        """Of each call that adds, the function that calls it, or the module whose hook that is."""
        hooked = self._hooked[self._adds]
        return np.where(hooked == NONE, self._caller[self._adds], hooked)

    @cached_property
    def _beside(self) -> Int64:
        """Of each call that adds, the user's function that calls the function that calls it, or NONE."""
        return self._users_outside(self._users[self._adds])

    def _are_modules_own(self, calls: Int64) -> bool:
        """Whether these, beside what allocates, are made by a module that is called there and adds more each
        time: to a list of its own results, such as keys and values of each layer."""
        caller, start_ns = self._users[calls], self._host.tree.start_ns
        module = self._host.module[caller]
        if not ((module != NONE) & (start_ns[module] >= start_ns[self._users_outside(caller)])).all():
            return False
        beside = self._adds[np.isin(self._users[self._adds], caller)]
        return [self._key(i)[0] for i in beside.tolist()].count(self._key(calls[0])[0]) > len(calls)

    def _users_outside(self, inner: Int32) -> Int64:
        """Return the user's nearest function around each of these functions, or NONE."""
        outer = np.where(inner == NONE, NONE, self._host.tree.parent[inner])
        return np.where(outer == NONE, NONE, self._users[outer])

    @cached_property
    def _adds(self) -> Int64:
        return self._calls(match(self._host.events, ADDS))

    @cached_property
    def _removes(self) -> Int64:
        return self._calls(match(self._host.events, REMOVES))

    def _calls(self, chosen: Bool) -> Int64:
        """Of the chosen events, those that a function of the user's calls itself, in order of time."""
        events = self._host.events
        calls = np.flatnonzero(chosen)
        calls = calls[(self._caller[calls] != NONE) & (self._caller[calls] == self._users[calls])]
        ordered: Int64 = calls[np.argsort(events.start_ns[calls], kind="stable")]
        return ordered

    @cached_property
    def _functions(self) -> Bool:
        events = self._host.events
        return match(events, ANY_FRAME) & (events.category == Category.PYTHON_FUNCTION)

    @cached_property
    def _caller(self) -> Int32:
        """Event of the nearest Python function around each event, or NONE. Torch's that registers a hook or
        adds a module is not around itself."""
        return self._host.tree.nearest_of(self._functions & ~match(self._host.events, TORCH_CALLS))

    @cached_property
    def _users(self) -> Int32:
        """Event of the user's nearest function around each event, or NONE."""
        events, own = self._host.events, np.zeros(len(self._host.events), np.bool_)
        functions = np.flatnonzero(self._functions)
        names, of_call = np.unique(events.name[functions], return_inverse=True)
        users = np.array([place_frame(events.names[int(i)]) is not None for i in names], np.bool_)
        own[functions] = users[of_call.reshape(-1)] if len(functions) else False
        return self._host.tree.nearest_of(own)

    @cached_property
    def _hooked(self) -> Int64:
        """The module whose hook is the function around each event, or NONE."""
        tree, caller = self._host.tree, self._caller
        outer = np.where(caller == NONE, NONE, tree.parent[caller])
        of_module = match(self._host.events, MODULE_CALL)
        return np.where((outer != NONE) & of_module[outer], outer, NONE)

    def _key(self, call: int) -> tuple[str, int, str]:
        kind, method = call_of(self._host.name(call))
        return kind, int(self._host.place[call]), method

    def _count(self, calls: Int64, kind: str, caller: int) -> int:
        return sum(self._key(i)[0] == kind for i in calls[self._host.place[calls] == caller].tolist())
