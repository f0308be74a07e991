"""Operator paths: where an operator is in the model, as the modules and operators around it."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary.marks import MODULE, module_name
from tb_gpudiag.vocabulary.recorded import Category

# Models nest modules and operators some 20 levels deep. What is deeper has the path of this level.
_MOST_LEVELS: Final = 60
# A path may have as many names as there are levels.
_LONGEST: Final = 600


class Paths:
    """Operators and modules around each host event, outermost first.

    of_event: number of the path that ends with the event's nearest operator or module, or NONE, shape (n,).
    """

    def __init__(self, host: Host) -> None:
        events, tree = host.events, host.tree
        part = (events.category == Category.CPU_OP) | match(events, MODULE)
        own = np.where(part & (tree.depth >= 0), np.arange(len(events)), NONE)
        nearest = tree.nearest(own)
        parent = np.where(tree.parent == NONE, NONE, nearest[tree.parent])
        rest = np.flatnonzero(own != NONE)
        number = np.full(len(events), NONE, np.int64)
        self._above: list[int] = []  # number of the path without its last name
        self._name: list[int] = []
        self._names = events.names
        for level in range(_MOST_LEVELS):
            above = number[parent[rest]] if level else np.full(len(rest), NONE, np.int64)
            ready = above != NONE if level else parent[rest] == NONE
            if not ready.any():
                break
            here = rest[ready]
            number[here] = self._numbered(above[ready], events.name[here].astype(np.int64))
            rest = rest[~ready]
        self.of_event: Int64 = np.where(nearest == NONE, NONE, number[nearest])

    def _numbered(self, above: Int64, name: Int64) -> Int64:
        """Return a number for each distinct pair."""
        base = len(self._names) + 1
        pairs, member = np.unique((above + 1) * base + name, return_inverse=True)
        first = len(self._above)
        self._above += (pairs // base - 1).tolist()
        self._name += (pairs % base).tolist()
        numbers: Int64 = first + member
        return numbers

    def text(self, number: int, separator: str) -> str:
        """Return the names of a path, joined; "" for NONE."""
        found = []
        while number != NONE:
            found.append(module_name(self._names[self._name[number]]))
            number = self._above[number]
        text = separator.join(reversed(found))
        return text if len(text) <= _LONGEST else text[-_LONGEST:]
