"""Engine steps of an inference server on the wire, and their figures in one line."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.stepping.serving_times import KindTime, Serving
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.time_messages import STEPS_LIMIT
from tb_gpudiag.report.building.units import message_of, us
from tb_gpudiag.vocabulary.libraries import Server
from tb_gpudiag.wording.format import count, figures, one_line, share, time_ns
from tb_gpudiag.wording.vocabulary import ENGINE_KINDS

FUNCTIONS_LIMIT = 20


def serving_message(found: Serving, server: Server, window: Window, *, for_engine: bool) -> pb.Serving:
    """Write the message. for_engine: see RequestWaits."""
    kinds = found.kinds()
    waiting_ns = int(found.waiting_ns.sum())
    return pb.Serving(
        server=server.value,
        marked=found.marked,
        sentence=_sentence(kinds, server),
        kinds=map(_kind, kinds),
        functions=[
            message_of(pb.EngineFunction, one, share=one.idle_ns / window.duration_ns)
            for one in found.functions[:FUNCTIONS_LIMIT]
        ],
        steps=_steps(found),
        waiting_us=us(waiting_ns),
        waits_for_engine=for_engine and waiting_ns > 0,
    )


def _kind(found: KindTime) -> pb.EngineKind:
    return pb.EngineKind(
        kind=found.kind.label,
        steps=found.steps,
        median_us=us(found.time.median),
        low_us=us(found.time.low),
        high_us=us(found.time.high),
        requests=found.requests,
        tokens=found.tokens,
        tokens_per_s=found.tokens_per_s,
        busy_share=found.busy,
        gap_us=us(max(found.gap_ns, 0)),
        gap_known=found.gap_ns != NONE,
    )


def _steps(found: Serving) -> list[pb.EngineStep]:
    account = found.account
    return [
        pb.EngineStep(
            kind=mark.kind.label,
            name=one_line(account.names[i]),
            start_us=us(account.start_ns[i]),
            duration_us=us(found.length_ns[i]),
            requests=mark.requests,
            tokens=mark.tokens,
            busy_us=us(found.busy_ns[i]),
            gap_us=us(max(found.gap_ns[i], 0)),
            gap_known=bool(found.gap_ns[i] != NONE),
        )
        for i, mark in enumerate(found.marks[:STEPS_LIMIT])
    ]


def _sentence(kinds: list[KindTime], server: Server) -> str:
    return f"{server.value}: {'; '.join(map(_of_kind, kinds))}."


def _of_kind(found: KindTime) -> str:
    word = ENGINE_KINDS[found.kind.label].noun
    said = count(found.steps, f"{word} step" if found.kind.label != "forward" else "engine step")
    said += f" of {time_ns(found.time.median)}" + (" (median)" if found.steps > 1 else "")
    if found.requests > 0:
        said += f", {count(round(found.requests), 'request')}"
    if found.tokens_per_s > 0:
        said += f", {figures(found.tokens_per_s)} tokens/s"
    return f"{said}, GPU busy {share(found.busy)}"
