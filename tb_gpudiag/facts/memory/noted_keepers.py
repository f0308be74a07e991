"""Which function keeps what a site allocates, where NotingTensors has noted what reaches it."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.containers import Containers
from tb_gpudiag.facts.memory.noted_tensors import NotedHolder
from tb_gpudiag.vocabulary.frames import Frame

FAR = 2
"""The function around an allocation that is one level away from what is kept calls what keeps it, or gets it
back: `history.add(loss())`. A trainer that holds a callback that holds a metric is farther, and does not."""

MOST_KEPT = 0.75
"""A function that keeps a site's tensors adds to a container after so many of them. Of a recording of four
steps or more, one may be on the other side of its end."""


def noted_keeper(
    holder: NotedHolder, stack: str, times_ns: Int64, containers: Containers, start_ns: Int64
) -> tuple[int, Frame] | None:
    """Return the innermost function around the allocations that reaches what is nearest to what they made,
    and how far that is from it. Where it is far, the only one nearer that adds to a container later in their
    steps. None if none is around.

    stack, times_ns: a site's. start_ns: of the steps.
    """
    found = holder.innermost(stack)
    if found is None or found[0] < FAR:
        return found
    for level in range(found[0]):
        nearer = [
            frame
            for frame, fills_ns in containers.fills.items()
            if holder.is_reached(level, frame) and _follows(fills_ns, times_ns, start_ns) >= MOST_KEPT
        ]
        if nearer:
            return (level, nearer[0]) if len(nearer) == 1 else found
    return found


def _follows(fills_ns: Int64, made_ns: Int64, start_ns: Int64) -> float:
    """Return the share of what was made that is followed by one of these times in the same step."""
    after = np.append(fills_ns, np.iinfo(np.int64).max)[np.searchsorted(fills_ns, made_ns)]
    ends = np.append(start_ns, np.iinfo(np.int64).max)[np.searchsorted(start_ns, made_ns, side="right")]
    return float((after < ends).mean()) if len(made_ns) else 0.0
