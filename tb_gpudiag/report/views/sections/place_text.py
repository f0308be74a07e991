"""Places in the code as text."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb


def code_place(where: pb.Place) -> str:
    """`file:line in function`, as much of it as is known."""
    spot = f"{where.file}:{where.line}" if where.file and where.line else where.file
    if where.function:
        spot = f"{spot} in {where.function}" if spot else where.function
    return spot


def full_place(where: pb.Place) -> str:
    """`file:line in function (operator)`, as much of it as is known."""
    spot = code_place(where)
    if where.operator:
        spot = f"{spot} ({where.operator})" if spot else where.operator
    return spot
