"""Tables of operators and kernels, call trees and the roofline for a page without a server, over the whole
recording. The page filters and sorts the rows that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import Message

from tb_gpudiag.report.slices.operators.call_groups import GROUPS, KERNEL_GROUPS, KINDS
from tb_gpudiag.report.slices.operators.call_tree_slice import WEIGHTS, slice_call_tree
from tb_gpudiag.report.slices.operators.kernel_table import slice_kernels
from tb_gpudiag.report.slices.operators.operator_table import slice_operators
from tb_gpudiag.report.slices.operators.roofline_plot import slice_roofline
from tb_gpudiag.report.slices.prepared import Prepared

_MOST_ROWS: Final = 150


def embedded_tables(prepared: Prepared) -> Iterator[tuple[str, Message]]:
    """Yield the answers, each with its route and what it is about: `operators/KIND/GROUP`."""
    for kind in KINDS:
        for group in GROUPS if kind == "operator" else GROUPS[:1]:
            yield f"operators/{kind}/{group}", _operators(prepared, group, kind)
    for group in KERNEL_GROUPS:
        yield f"kernels/{group}", slice_kernels(prepared, group, "total", "", _MOST_ROWS, None, None)
    for weight in WEIGHTS:
        yield f"callTree/{weight}", slice_call_tree(prepared, weight, None, None, None)
    yield "roofline", slice_roofline(prepared)


def _operators(prepared: Prepared, group: str, kind: str) -> Message:
    by_gpu = slice_operators(prepared, group, kind, "gpu_self", "", _MOST_ROWS, None, None)
    if by_gpu.has_gpu:
        return by_gpu
    return slice_operators(prepared, group, kind, "host_self", "", _MOST_ROWS, None, None)
