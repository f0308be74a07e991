"""What a collective sends is read with its event, whatever the trace says of it."""

from __future__ import annotations

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.events import Message, Trace
from tests.trace.support import document, read_bytes, span
from tests.with_each import with_each

ARGS = {
    "Collective name": "allreduce",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 3]",
    "Group size": 2,
    "Seq": 17,
    "In msg nelems": 2049000,
    "Out msg nelems": 2049000,
    "dtype": "Float",
}


def messages(trace: Trace) -> list[Message | None]:
    found = trace.events.message.tolist()
    return [None if index == NONE else trace.events.messages[index] for index in found]


@pytest.mark.parametrize(
    ("name", "cat"), [("record_param_comms", "cpu_op"), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel")]
)
def test_a_collective_has_its_message(name: str, cat: str) -> None:
    trace = read_bytes(document(span(name="aten::mm"), span(name=name, cat=cat, args=ARGS, ts=2)))
    expected = Message("allreduce", "0", (0, 3), 2, 17, 2049000, 2049000, "Float", NONE, NONE)
    assert messages(trace) == [None, expected]


def test_sender_and_receiver_of_point_to_point() -> None:
    args = {"Collective name": "send", "Src Rank": 1, "Dst Rank": 2}
    (found,) = messages(read_bytes(document(span(name="record_param_comms", args=args))))
    assert found is not None
    assert (found.source, found.destination, found.sequence, found.ranks) == (1, 2, NONE, ())


def test_a_trace_without_messages_has_none() -> None:
    trace = read_bytes(document(span(name="record_param_comms"), span(name="ncclKernel_AllReduce", ts=2)))
    assert messages(trace) == [None, None]


@with_each("bad", [{"Seq": "x" * 5000}, {"Seq": -5, "Group size": 10**30}, {"dtype": "\x1f"}])
def test_hostile_values_are_not_believed(bad: dict[str, object]) -> None:
    (found,) = messages(read_bytes(document(span(name="record_param_comms", args={**ARGS, **bad}))))
    assert found is None or (found.sequence in (NONE, 17) and found.group_size in (NONE, 2))
