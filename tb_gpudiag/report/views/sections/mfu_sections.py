"""Where the peak of a GPU goes, and the operators that lose most of it."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Account, Column, ColumnOf, Kind, Part, Section, numbers, table_of
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.kinds import MFU_PARTS
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of, throughput
from tb_gpudiag.wording.term import term
from tb_gpudiag.wording.vocabulary import CAUSES

OPERATORS_SHOWN = 10
"""Rows of the table. The Report has more."""


def mfu_sections(report: pb.Report) -> list[Section]:
    """The account of the peak, and operators by the time beyond their roofline. Empty without an MFU."""
    found = report.mfu
    if not found.parts:
        return []
    window_us = sum(part.us for part in found.parts)
    title = f"MFU: where the peak of {throughput(found.peak_teraflops)} ({found.computes_in}) goes"
    if found.hfu > found.mfu:
        again = share(found.recomputing_us, window_us)
        title += f"; with what backward repeats {share(found.hfu)} (HFU), in {again} of the time"
    low, high = (share(of(found.steps, default=0.0)) for of in (min, max))
    if low != high:
        title += f"; by step {low} to {high}"
    return [Account("mfu", title, tuple(map(_part, found.parts)), window_us), _operators(found)]


def _part(part: pb.MfuPart) -> Part:
    id = pb.MfuPart.Part.Name(part.part)
    if part.part != pb.MfuPart.idle:
        return Part(id, term(MFU_PARTS, id).noun, part.us)
    cause = pb.CauseTime.Cause.Name(part.cause)
    return Part(cause, f"idle: {term(CAUSES, cause).noun}", part.us)


def _operators(found: pb.Mfu) -> Section:
    columns: list[ColumnOf[pb.OperatorRate]] = [
        (Column("Operator", Kind.CODE), lambda rate: rate.operator),
        (Column("Shapes", Kind.CODE), lambda rate: rate.shapes),
        (Column("Format"), lambda rate: rate.number),
        (numbers("calls"), lambda rate: number(rate.calls)),
        (numbers("gpu_time"), lambda rate: duration(rate.us * 1e3)),
        (numbers("beyond_roofline"), lambda rate: duration(rate.lost_us * 1e3)),
        (numbers("teraflops"), lambda rate: throughput(rate.teraflops) if rate.teraflops else ""),
        (numbers("terabytes"), lambda rate: bandwidth(rate.terabytes * 1e3)),
        (numbers("of_roofline"), lambda rate: share_of(rate.reached, 1) if rate.reached else ""),
    ]
    shown = found.operators[:OPERATORS_SHOWN]
    return table_of("operator_rates", "Operators that lose most of the peak", shown, columns)
