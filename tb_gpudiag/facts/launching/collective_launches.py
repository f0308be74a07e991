"""Communication kernels by what launched them: the operation, and the annotation around it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import kind_by_name, match
from tb_gpudiag.vocabulary import marks, operators, torch_frames
from tb_gpudiag.vocabulary.collective_kinds import NAMES, Collective
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True)
class CollectiveLaunches:
    """What launched each communication kernel. Shape (k,) each.

    kind: Collective.
    annotation: the name of the nearest user annotation around the launch, "" if there is
    none. The marks of steps, loaders, optimizers and back ends do not count.
    """

    kind: UInt8
    annotation: list[str]

    def by_annotation(self, weight_ns: Int64) -> list[tuple[str, int]]:
        """Return annotations and their time, most first. weight_ns: time of each kernel, shape (k,)."""
        total: Counter[str] = Counter()
        for name, weight in zip(self.annotation, weight_ns.tolist(), strict=True):
            total[name] += weight
        return [(name, time_ns) for name, time_ns in total.most_common() if name and time_ns]


def collective_launches(host: Host, kernel: Int64, launch: Int64) -> CollectiveLaunches:
    """Find what launched communication kernels.

    kernel: their event indices, shape (k,). launch: their launch calls, or NONE, shape (k,).
    """
    events = host.events
    of_name = kind_by_name(events, NAMES, Collective.OTHER)
    on_host = match(events, operators.COLLECTIVE)
    own = np.where(on_host & (of_name[events.name] != Collective.OTHER), of_name[events.name], NONE)
    called = np.where(launch == NONE, NONE, host.tree.nearest(own)[launch])
    kind = np.where(called == NONE, of_name[events.name[kernel]], called).astype(np.uint8)
    is_mark = (events.category == Category.USER_ANNOTATION) & ~on_host
    for pattern in (marks.STEP, marks.OPTIMIZER_STEP, marks.ZERO_GRAD, torch_frames.LOADER):
        is_mark &= ~match(events, pattern)
    around = host.tree.nearest_of(is_mark)
    found = np.where(launch == NONE, NONE, around[launch])
    names = ["" if event == NONE else events.names[events.name[event]] for event in found.tolist()]
    return CollectiveLaunches(kind, names)
