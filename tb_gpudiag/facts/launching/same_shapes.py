"""Whether every step launches the same, as far as a trace says: the operators, and the shapes of matmuls."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import distinct
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.vocabulary.operators import MATMUL_FACTORS


def same_shapes(host: Host, work: Work, steps: Steps) -> bool | None:
    """Return False if operators or shapes differ between steps, True if they do not.

    None with fewer than two steps, or if operators are the same and no shapes were recorded. With three steps
    or more the first one does not count, because it creates what the others reuse.
    """
    events = host.events
    calls = distinct(work.launch[work.linked])
    calls = calls[host.operator[calls] != NONE]
    operator = host.operator[calls]
    order = np.argsort(steps.start_ns, kind="stable")[1 if len(steps) > 2 else 0 :]
    if len(order) < 2:
        return None
    step = np.searchsorted(steps.start_ns[order], events.start_ns[calls], side="right") - 1
    inside = (step >= 0) & (events.start_ns[calls] < steps.end_ns[order][np.maximum(step, 0)])
    matmul = np.array([name in MATMUL_FACTORS for name in events.names], np.bool_)[events.name[operator]]
    shapes = np.where(matmul, events.shapes[operator], NONE)
    launched = np.stack([step, events.name[operator], shapes])[:, inside]
    launched, count = np.unique(launched, axis=1, return_counts=True)
    borders = np.searchsorted(launched[0], np.arange(1, len(order)))
    first, *others = np.split(np.vstack([launched[1:], count]), borders, axis=1)
    if not all(np.array_equal(first, other) for other in others):
        return False
    return True if (first[1] != NONE).any() else None
