"""GPU time by the module that it is spent for, in graphs as well."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.marks import module_name, without_numbers


@dataclass(frozen=True)
class ModuleTime:
    """Modules whose names differ in their numbers only, such as the layers of a model.

    module: their name with `*` for each number; "" for work outside of modules. modules: how many they are.
    time_ns: sum of durations.
    """

    module: str
    modules: int
    kernels: int
    time_ns: int


def by_module(kernels: Kernels, host: Host) -> list[ModuleTime]:
    """Return the time of a device's work by module, most time first; empty where no work has a module.

    Work of a CUDA graph has the module that its annotation names (torch.cuda.graph_annotations), other work
    the innermost nn.Module around the call that launched it. host: whose events the kernels' origins are.
    """
    events = host.events
    names = [module_name(name) for name in events.names]
    around = np.append(host.names(host.module), NONE)[kernels.origin]
    annotated = events.annotation[kernels.event].astype(np.int64)
    code = np.where(annotated == NONE, around, annotated + len(names))
    found, member = np.unique(code, return_inverse=True)
    texts = [*names, *events.annotations, ""]  # NONE is the last one
    of_pattern: dict[str, list[int]] = {}
    for place, i in enumerate(found.tolist()):
        of_pattern.setdefault(without_numbers(texts[i]), []).append(place)
    time_ns = np.bincount(member, kernels.duration_ns, len(found)).astype(np.int64)
    count = np.bincount(member, minlength=len(found))
    rows = [
        ModuleTime(pattern, len(places), int(count[places].sum()), int(time_ns[places].sum()))
        for pattern, places in of_pattern.items()
    ]
    named = any(row.module for row in rows)
    return sorted(rows, key=lambda row: -row.time_ns) if named else []
