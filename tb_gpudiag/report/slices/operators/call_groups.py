"""Groups of calls and of GPU work: the key of each node or cell in a table, its stack, and what a filter
matches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_weights import CallData
from tb_gpudiag.vocabulary.frames import LineKind, old_call_stack, parse_frame, place_frame
from tb_gpudiag.vocabulary.marks import module_name
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

MOST_FRAMES = 64
"""Innermost frames. Those further out are the same everywhere in a script."""

_SHORT = 3

KINDS: Mapping[str, tuple[Category, ...]] = {
    "operator": (Category.CPU_OP,),
    "range": (Category.USER_ANNOTATION,),
    "call": CALL_CATEGORIES,
    "python": (Category.PYTHON_FUNCTION,),
}
"""What a table can be about."""

OUTSIDE = 0
"""Key of what is in no module, and of GPU work that no operator launched."""


def stack_of(data: CallData, node: int) -> pb.CallStack:
    """Return what is around a node, innermost first: its own stack, or in backward the forward operator's."""
    found = pb.CallStack()
    parents, category = data.parents, data.array("call_category")
    forward = int(data.array("call_forward")[node])
    stacks = data.array("call_stack")
    text = int(stacks[node])
    if text == NONE and forward != NONE:
        text = int(stacks[forward])
    at = parents[node]
    if forward != NONE and int(data.array("call_frame")[node]) != NONE and not _in_python(data, node):
        found.forward, at = True, forward
    if text != NONE:
        found.forward = forward != NONE and int(stacks[node]) == NONE
        names = old_call_stack(data.text(text))
        found.frames.extend(
            pb.CallFrame(name=name[:300], kind=Category.PYTHON_FUNCTION) for name in names[:MOST_FRAMES]
        )
        found.more_frames = max(0, len(names) - MOST_FRAMES)
        return found
    around = []
    while at != NONE:
        around.append(at)
        at = parents[at]
    around = around[:-1]  # without the thread
    found.frames.extend(
        pb.CallFrame(name=data.node_name(call), kind=int(category[call])) for call in around[:MOST_FRAMES]
    )
    found.more_frames = max(0, len(around) - MOST_FRAMES)
    return found


def _in_python(data: CallData, node: int) -> bool:
    """Whether Python frames of its own thread are around the node."""
    parents, python = data.array("call_parent"), data.array("call_python")
    above = int(parents[node])
    return above != NONE and int(python[above]) != NONE


def short_stack(data: CallData, node: int) -> list[str]:
    """Return the innermost frames that a user could change, else the innermost ones: innermost first."""
    frames = [frame.name for frame in stack_of(data, node).frames if frame.kind == Category.PYTHON_FUNCTION]
    kind = LineKind.DEFINITION if int(data.array("call_frame")[node]) != NONE else LineKind.RUNNING
    own = [str(frame) for frame in (place_frame(name, kind) for name in frames) if frame is not None]
    if own:
        return own[:_SHORT]
    return [str(parse_frame(name, kind) or name) for name in frames[:_SHORT]]


def of_kind(data: CallData, kind: str) -> Bool:
    """Mask of the nodes of this kind, shape (m,)."""
    return np.isin(data.array("call_category"), np.array(KINDS[kind], np.uint8))


def node_keys(data: CallData, group: str, kind: str) -> Int64:
    """Return the key of each node of this kind, NONE for other nodes, shape (m,)."""
    name = data.array("call_name").astype(np.int64)
    if group == "operator":
        key = name
    elif group == "module":
        key = _module_names(data, data.array("call_module"))
    else:
        key = name * _several(data) + (_shapes(data) if group == "shapes" else _stacks(data))
    return np.where(of_kind(data, kind), key, NONE)


def _several(data: CallData) -> int:
    """More than there are shapes or stacks."""
    return len(data.prepared["call_code"]) + len(data.prepared["call_text_first"]) + 1


def _shapes(data: CallData) -> Int64:
    return data.array("call_shapes").astype(np.int64) + 1


def _stacks(data: CallData) -> Int64:
    """Return a number of each node's call stack, 0 if it has none: its Python functions, else the recorded
    text."""
    code, stack, forward = (
        data.array(f"call_{part}").astype(np.int64) for part in ("code", "stack", "forward")
    )
    stack = np.where((stack == NONE) & (forward != NONE), stack[forward], stack)
    return np.where((code > 0) | (stack == NONE), code, stack + len(code) + 1)


def _module_names(data: CallData, module: Int64) -> Int64:
    """Return a key of each module's name, OUTSIDE for NONE."""
    named = data.array("call_name").astype(np.int64)[module] + 1
    return np.where(module == NONE, OUTSIDE, named)


def modules_inside(data: CallData, values: Int64) -> Int64:
    """Return the sum for each module node over itself and the modules inside it, 0 for other nodes.

    values: of each node, counted for the module that it runs in."""
    module = data.array("call_module").astype(np.int64)
    known = module != NONE
    own = summed(module[known], values[known], len(values))
    is_module = module == np.arange(len(module))
    return np.where(is_module, data.below(own), 0)


def module_keys(data: CallData) -> Int64:
    """Return the key of each module node, NONE for other nodes, shape (m,)."""
    module = data.array("call_module").astype(np.int64)
    is_module = module == np.arange(len(module))
    return np.where(is_module, _module_names(data, module), NONE)


def cell_keys(data: CallData, group: str) -> Int64:
    """Return the key of each cell of GPU work, shape (k,)."""
    name = data.array("cell_name").astype(np.int64)
    if group == "kernel":
        return name
    return name * (len(data.prepared["text_first"]) + 1) + cell_operators(data) + 1


def cell_operators(data: CallData) -> Int64:
    """Return the name of the operator or range that launched each cell's work, or NONE, shape (k,)."""
    node = data.array("cell_node").astype(np.int64)
    if not len(data.prepared["call_owner"]):
        return node
    owner = np.where(node == NONE, NONE, data.array("call_owner").astype(np.int64)[node])
    return np.where(owner == NONE, NONE, data.array("call_name").astype(np.int64)[owner])


def matching(data: CallData, names: Int64, text: str) -> Bool:
    """Mask of the names that contain the text, upper and lower case alike, shape of `names`."""
    if not text:
        return np.ones(len(names), np.bool_)
    wanted = text.casefold()
    known, member = np.unique(names, return_inverse=True)
    found = [index >= 0 and wanted in module_name(data.name(index)).casefold() for index in known.tolist()]
    return np.array(found, np.bool_)[member] if len(known) else np.zeros(0, np.bool_)
