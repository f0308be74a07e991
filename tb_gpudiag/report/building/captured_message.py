"""What the captures of graphs say about their kernels, on the wire."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.launching.captured_graphs import CapturedGraphs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import place, us
from tb_gpudiag.rules.answer import place_at
from tb_gpudiag.rules.shared.roofline_evidence import tensors
from tb_gpudiag.vocabulary.marks import module_class
from tb_gpudiag.wording.format import count, in_quotes, one_line, share

NODES_LIMIT = 200
FILES_LIMIT = 20


def captured_message(found: CapturedGraphs, kernels: Kernels, graphs: Bool) -> pb.CapturedGraphs:
    """Write the message. kernels: of the busiest device in the step window, with origins that are events of
    found.host. graphs: mask of those in graphs, shape (k,)."""
    return pb.CapturedGraphs(
        files=map(one_line, found.files[:FILES_LIMIT]),
        kernels=found.nodes,
        matched=found.matched,
        sentence=_sentence(found),
        nodes=_nodes(found.host, kernels, np.flatnonzero(graphs)),
    )


def _sentence(found: CapturedGraphs) -> str:
    files = " and ".join(in_quotes(name, 60) for name in found.files[:2])
    files += f" and {count(len(found.files) - 2)} more" if len(found.files) > 2 else ""
    start = f"Kernels in graphs: {share(found.matched, found.nodes)} of {count(found.nodes)}"
    if found.matched:
        return f"{start} have their operators, shapes and modules from {files}."
    if found.ambiguous:
        return f"{start} were found: several captures fit equally. Name one with --capture."
    why = "it does not name the kernels that it captured" if found.unnamed else "it captured other kernels"
    return f"{start} were found in {files}: {why}."


def _nodes(host: Host, kernels: Kernels, own: Int64) -> list[pb.GraphNode]:
    """Group nodes by operator, shapes, class of module and kernel, most time first."""
    events, origin = host.events, kernels.origin[own]
    operator = kernels.operators(host)[own]
    module, where = host.module[origin], host.place[origin]
    classes = _classes(host, module)
    keys = np.stack(
        [
            host.names(operator),
            np.where(operator == NONE, NONE, events.shapes[operator]),
            classes,
            host.names(kernels.event[own]),
        ]
    )
    _, first, member = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    member = member.reshape(-1)
    number = np.bincount(member, minlength=len(first))
    time_ns = summed(member, kernels.duration_ns[own], len(first))
    found = []
    for group in np.argsort(-time_ns, kind="stable")[:NODES_LIMIT].tolist():
        one = int(first[group])
        shapes = keys[1, one]
        frame = host.frame(int(where[one]))
        found.append(
            pb.GraphNode(
                operator=one_line(host.name(int(operator[one]))),
                shapes=tensors(events.input_shapes[shapes]) if shapes != NONE else "",
                module=one_line(module_class(host.name(int(module[one])))),
                place=place(place_at(frame, time_ns=int(time_ns[group]))) if frame is not None else None,
                kernel=one_line(host.name(int(kernels.event[own[one]]))),
                kernels=int(number[group]),
                us=us(time_ns[group]),
            )
        )
    return found


def _classes(host: Host, module: Int64) -> Int64:
    """Return a number for the class of each module, NONE for none."""
    names, member = np.unique(host.names(module), return_inverse=True)
    known: dict[str, int] = {}
    numbers = [
        NONE if i == NONE else known.setdefault(module_class(host.events.names[i]), len(known))
        for i in names.tolist()
    ]
    return np.array(numbers, np.int64)[member.reshape(-1)] if len(names) else member
