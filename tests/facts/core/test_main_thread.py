from __future__ import annotations

from tests.builder import TraceBuilder
from tests.facts import facts_of


def test_a_notebooks_threads_have_more_frames_than_the_one_that_computes() -> None:
    trace = TraceBuilder(devices=())
    main, sockets = trace.thread(), trace.thread("iopub")
    main.frame("train.py(3): step", at=0, us=1_000).op("aten::mm", at=10, us=900)
    sockets.frame("ipykernel/iostream.py(75): _thread_main", at=0, us=1_000)
    for at in range(1, 900, 10):
        sockets.frame("zmq/sugar/socket.py(543): send", at=at, us=5)
    facts = facts_of(trace)
    thread = facts.events.thread[[facts.events.names[i] for i in facts.events.name].index("aten::mm")]
    assert facts.main_thread == thread
