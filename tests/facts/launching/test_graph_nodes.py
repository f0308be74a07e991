from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.launching.graph_nodes import NodeGap
from tests.builder import TraceBuilder
from tests.facts import facts_of


def test_what_ran_before_a_node_tells_its_kind() -> None:
    trace = TraceBuilder()
    nodes = [("a", 20, 10), ("b", 31, 10), ("clear", 44, 2), ("c", 49, 10), ("side", 63, 10), ("d", 76, 10)]
    trace.thread().graph_launch([(name, float(at), float(us)) for name, at, us in nodes], at=0, us=10)
    spans = {span.name: span for span in trace.recording.gpu}
    spans["clear"].kind = "memset"
    spans["side"].stream += 1
    facts = facts_of(trace)
    gaps = facts.gpu.ledger.gaps
    inner = np.flatnonzero(gaps.start_ns >= facts.gpu.span.start_ns)
    found = facts.gpu.node_gaps(inner, (gaps.end_ns - gaps.start_ns)[inner])
    assert found.kind.tolist() == [
        NodeGap.KERNELS,
        NodeGap.COPIES,
        NodeGap.COPIES,
        NodeGap.STREAMS,
        NodeGap.STREAMS,
    ]
    assert found.nodes == len(nodes)
    assert found.before[0] == ("side", 4_000, 1)
