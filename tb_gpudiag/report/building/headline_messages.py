"""Messages with a sentence of their own below the verdict, and their tables: the MFU with the parts of the
peak and the operators that lose most of it, engine steps of an inference server, and what captures of graphs
say."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, longest
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.mfu import Mfu, Missing, PeakPart
from tb_gpudiag.facts.kernels.roofline import OperatorTime, Roofline
from tb_gpudiag.facts.launching.graph_nodes import CapturedGraphs
from tb_gpudiag.facts.stepping.serving_times import KindTime, Serving
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.time_messages import STEPS_LIMIT
from tb_gpudiag.report.building.units import table_message, us
from tb_gpudiag.report.essentials import peak_text
from tb_gpudiag.rules.shared.roofline_evidence import tensors
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.vocabulary.marks import module_class
from tb_gpudiag.wording.format import count, figures, in_quotes, one_line, share, time_ns
from tb_gpudiag.wording.quantity import throughput
from tb_gpudiag.wording.vocabulary import ENGINE_KINDS, Term

OPERATORS_LIMIT = 20
"""Operators by the time that they take beyond their roofline."""

# Smaller parts are in the account, not in the sentence; and so much unknown time makes an MFU "at least".
_LEAST_SAID = 0.01


def mfu_message(found: Mfu, roofline: Roofline, steps: int) -> pb.Mfu | None:
    """Write the message. steps: number of steps in the window. None where nothing multiplies matrices."""
    if found.missing == Missing.MATMULS or not found.window_ns:
        return None
    at_least = found.share(PeakPart.UNKNOWN) >= _LEAST_SAID
    assumed = roofline.peaks.assumed if found.peak and roofline.peaks is not None else ""
    # Parts that take time, from the peak down.
    message = pb.Mfu(
        missing=found.missing.label,
        mfu=found.share(PeakPart.MODEL),
        hfu=found.share(PeakPart.MODEL, PeakPart.RECOMPUTED),
        at_least=at_least,
        computes_in=found.computes_in,
        peak_teraflops=found.peak,
        assumed=assumed,
        model_teraflops=found.operations / found.window_ns / 1e3,
        step_operations=found.operations / steps if steps else 0,
        recomputing_us=us(found.recomputing_ns),
        parts=[pb.MfuPart(part=part.label, us=us(ns)) for part, ns in found.parts_ns.items() if ns > 0],
        steps=found.by_step[:STEPS_LIMIT],
    )
    message.sentence = _cannot_tell(found) if found.missing else _mfu_sentence(found, message)
    return message


def _mfu_sentence(found: Mfu, message: pb.Mfu) -> str:
    figure = f"MFU {'at least ' if message.at_least else ''}{share(message.mfu)} of {peak_text(message)}"
    above = found.above_peak_ns >= _LEAST_SAID * found.window_ns
    exceeded = " Some operators are faster than the stated peak, and count as at the peak." if above else ""
    return f"{figure}.{exceeded}"


def _cannot_tell(found: Mfu) -> str:
    if found.missing == Missing.SHAPES:
        return "MFU: cannot tell without input shapes. Record with record_shapes=True."
    reached = throughput(found.operations / found.window_ns / 1e3)
    if found.missing == Missing.PEAK:
        return f"MFU: cannot tell, because the peak of this GPU is not known. Its matmuls reach {reached}."
    names = " and ".join(in_quotes(name, 60) for name in found.unknown)
    what = f", such as {names}" if names else ""
    return (
        f"MFU: cannot tell, because kernels whose FLOPs are not known{what}, take "
        f"{share(found.unknown_ns, found.window_ns)} of the step window, longer than those with known FLOPs."
    )


def rate_table(roofline: Roofline) -> pb.Table:
    """Operators of the step window by the time that they take beyond their roofline. Calls with the same
    inputs are one row."""

    def lost_ns(found: OperatorTime) -> float:
        return max(0.0, found.time_ns - found.least_ns) if found.least_ns else 0.0

    rated = [found for found in roofline.operators if found.time_ns > 0]
    rated.sort(key=lambda found: (-lost_ns(found), -found.time_ns))
    rows = [
        (
            found.operator,
            tensors(found.shapes),
            found.number,
            found.calls,
            found.time_ns,
            lost_ns(found),
            found.operations / found.time_ns / 1e3 or None,
            found.bytes / found.time_ns,
            found.reached or None,
            found.recomputed,
        )
        for found in rated[:OPERATORS_LIMIT]
    ]
    return table_message("operator_rates", rows, first=5)


FUNCTIONS_LIMIT = 20


def serving_message(found: Serving, server: Server, *, for_engine: bool) -> pb.Serving:
    """Write the message. for_engine: see RequestWaits."""
    kinds = found.kinds()
    waiting_ns = int(found.waiting_ns.sum())
    return pb.Serving(
        server=server.value,
        marked=found.marked,
        sentence=f"{server.value}: {'; '.join(map(_of_kind, kinds))}.",
        steps=len(found.marks),
        waiting_us=us(waiting_ns),
        waits_for_engine=for_engine and waiting_ns > 0,
    )


def serving_tables(found: Serving, server: Server, window: Window) -> list[pb.Table]:
    """Steps by kind, what the engine did while the device was idle, and, for programs, each step."""
    kinds = [
        (
            ENGINE_KINDS[kind.kind.label].word,
            kind.steps,
            (kind.time.median, f"quartiles {time_ns(kind.time.low)} to {time_ns(kind.time.high)}"),
            *map(_stated, (kind.requests, kind.tokens, kind.tokens_per_s)),
            kind.busy,
            _gap_ns(kind.gap_ns),
        )
        for kind in found.kinds()
    ]
    functions = [
        (one.name, one.before_ns, one.inside_ns, one.idle_ns / window.duration_ns)
        for one in found.functions[:FUNCTIONS_LIMIT]
    ]
    account = found.account
    steps = [
        (
            account.names[i],
            mark.kind.label,
            found.length_ns[i],
            found.busy_ns[i],
            *map(_stated, (mark.requests, mark.tokens)),
            _gap_ns(found.gap_ns[i]),
        )
        for i, mark in enumerate(found.marks[:STEPS_LIMIT])
    ]
    ranges = [longest(account.start_ns[[i]], account.end_ns[[i]]) for i in range(len(steps))]
    how = "" if found.marked else ", by the function that runs the model"
    title = f"Engine steps of {server.value}{how}"
    return [
        table_message("engine_steps", kinds, first=8, title=title),
        table_message("engine_functions", functions, first=8),
        table_message("each_engine_step", steps, first=0, ranges=ranges),
    ]


def _stated(value: float) -> float | None:
    """A number that the server states."""
    return value if value >= 0 else None


def _gap_ns(value: float) -> float | None:
    return max(value, 0) if value != NONE else None


def _of_kind(found: KindTime) -> str:
    word = ENGINE_KINDS[found.kind.label].noun
    said = count(found.steps, f"{word} step" if found.kind.label != "forward" else "engine step")
    said += f" of {time_ns(found.time.median)}" + (" (median)" if found.steps > 1 else "")
    if found.requests > 0:
        said += f", {count(round(found.requests), 'request')}"
    if found.tokens_per_s > 0:
        said += f", {figures(found.tokens_per_s)} tokens/s"
    return said


NODES_LIMIT = 200
FILES_LIMIT = 20


def captured_message(found: CapturedGraphs) -> pb.CapturedGraphs:
    return pb.CapturedGraphs(
        files=map(one_line, found.files[:FILES_LIMIT]),
        kernels=found.nodes,
        matched=found.matched,
        sentence=_captured_sentence(found),
    )


def _captured_sentence(found: CapturedGraphs) -> str:
    files = " and ".join(in_quotes(name, 60) for name in found.files[:2])
    files += f" and {count(len(found.files) - 2)} more" if len(found.files) > 2 else ""
    start = f"Kernels in graphs: {share(found.matched, found.nodes)} of {count(found.nodes)}"
    if found.matched:
        return f"{start} have their operators, shapes and modules from {files}."
    if found.ambiguous:
        return f"{start} were found: several captures fit equally. Name one with --capture."
    why = "it does not name the kernels that it captured" if found.unnamed else "it captured other kernels"
    return f"{start} were found in {files}: {why}."


def graph_table(host: Host, kernels: Kernels, graphs: Bool) -> pb.Table:
    """Kernels in graphs by operator, shapes, class of module and kernel, most time first. kernels: of the
    busiest device in the step window, with origins that are events of the host. graphs: mask of those in
    graphs, shape (k,)."""
    own = np.flatnonzero(graphs)
    events, origin = host.events, kernels.origin[own]
    operator = kernels.operators(host)[own]
    module, where = host.module[origin], host.place[origin]
    keys = np.stack(
        [
            host.names(operator),
            np.where(operator == NONE, NONE, events.shapes[operator]),
            _classes(host, module),
            host.names(kernels.event[own]),
        ]
    )
    _, first, member = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    member = member.reshape(-1)
    number = np.bincount(member, minlength=len(first))
    time_ns = summed(member, kernels.duration_ns[own], len(first))
    rows = []
    for group in np.argsort(-time_ns, kind="stable")[:NODES_LIMIT].tolist():
        one = int(first[group])
        shapes, frame = keys[1, one], host.frame(int(where[one]))
        name = host.name(int(operator[one]))
        rows.append(
            (
                Term("", name, str(frame)) if frame is not None else name,
                tensors(events.input_shapes[shapes]) if shapes != NONE else "",
                module_class(host.name(int(module[one]))),
                host.name(int(kernels.event[own[one]])),
                int(number[group]),
                int(time_ns[group]),
            )
        )
    return table_message("graph_kernels", rows, first=12)


def _classes(host: Host, module: Numbers) -> Int64:
    """Return a number for the class of each module, NONE for none."""
    names, member = np.unique(host.names(module), return_inverse=True)
    known: dict[str, int] = {}
    numbers = [
        NONE if i == NONE else known.setdefault(module_class(host.events.names[i]), len(known))
        for i in names.tolist()
    ]
    return np.array(numbers, np.int64)[member.reshape(-1)] if len(names) else member
