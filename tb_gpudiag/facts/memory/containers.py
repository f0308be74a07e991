"""Containers: which of Python's lists, dicts, sets and deques receives what a line allocates.

With stacks, a trace has a call such as `<built-in method append of list object at 0x...>` inside the function
that calls it. That function contains the allocation, too, or calls what allocates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary.container_calls import ADDS, REMOVES, call_of
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

    added, removed: calls of that function on such containers, over the recording.
    in_hook: torch's own module code calls the function, after the forward pass whose output it keeps.
    """

    type: str  # list, deque, dict, ...
    method: str  # append, ...
    frame: Frame  # of the calling function
    added: int
    removed: int
    in_hook: bool


class Containers:
    """The calls of the user's own functions that fill and empty containers."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def holder(self, times_ns: Int64, thread: Int32) -> Holder | None:
        """Return what receives most of the allocations that were made at these times on these threads."""
        found = self._adding(times_ns, thread)
        found = found[found != NONE]
        if not len(found):
            return None
        (kind, caller, _), _ = Counter(map(self._key, found.tolist())).most_common(1)[0]
        same = [i for i in found.tolist() if self._key(i)[:2] == (kind, caller)]
        frame = self._host.frame(caller)
        if len(same) < LEAST_SHARE * len(times_ns) or frame is None:
            return None
        return Holder(
            type=kind,
            method=self._key(same[0])[2],
            frame=frame,
            added=self._count(self._adds, kind, caller),
            removed=self._count(self._removes, kind, caller),
            in_hook=frame.function != "forward" and bool((self._hooked[same] != NONE).all()),
        )

    def _adding(self, times_ns: Int64, thread: Int32) -> Int64:
        """Return the first call after each time that adds to a container, in a function that was running at
        that time; NONE without one. Shape of `times_ns`."""
        events, adds, found = self._host.events, self._adds, np.full(len(times_ns), NONE, np.int64)
        start, hooked = events.start_ns[adds], self._hooked[adds]
        caller_start = self._host.tree.start_ns[np.where(hooked == NONE, self._caller[adds], hooked)]
        first = np.searchsorted(start, times_ns)
        for ahead in range(MOST_LOOKED_AT):
            open_ = np.flatnonzero((found == NONE) & (first + ahead < len(adds)))
            if not len(open_):
                break
            at = first[open_] + ahead
            holds = (caller_start[at] <= times_ns[open_]) & (events.thread[adds[at]] == thread[open_])
            found[open_[holds]] = adds[at[holds]]
        return found

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
        calls = calls[self._caller[calls] != NONE]
        names, of_call = np.unique(events.name[self._caller[calls]], return_inverse=True)
        users = np.array([place_frame(events.names[int(i)]) is not None for i in names], np.bool_)
        own = calls[users[of_call.reshape(-1)]] if len(calls) else calls
        return own[np.argsort(events.start_ns[own], kind="stable")]

    @cached_property
    def _caller(self) -> Int64:
        """Event of the nearest Python function around each event, or NONE."""
        events = self._host.events
        return self._host.tree.nearest_of(
            match(events, ANY_FRAME) & (events.category == Category.PYTHON_FUNCTION)
        )

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
