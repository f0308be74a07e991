"""Call stacks of nodes of the call tree."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_weights import CallData
from tb_gpudiag.vocabulary.frames import LineKind, old_call_stack, parse_frame, place_frame
from tb_gpudiag.vocabulary.recorded import Category

MOST_FRAMES = 64
"""Innermost frames. Those further out are the same everywhere in a script."""

_SHORT = 3


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
