from __future__ import annotations

from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.launches.launch_bound import RULE
from tb_gpudiag.wording.quantity import duration, share_of
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import facts_of, figures, finding

BUFFERS = "DDP broadcasting and copying buffers"
GRADIENTS = "DDP copying buckets into gradients"


def _launched(main: HostThread, name: str, at: float) -> None:
    """An operator of 18 µs with a kernel that starts at its 16th µs and runs 3 µs."""
    main.op(name, at=at, us=18)
    main.launch(name, at=at + 8, us=7, runs_at=at + 16, runs_us=3)


def _step(
    folder: Path, *, forward: str = "DistributedDataParallel.forward", bucket: str = "", copies: int = 5
) -> Facts:
    """Build a step of 20 operators in DDP's forward, the first of them a broadcast with its copies, and 30
    more in the backward pass, the last five of them named `bucket`."""
    trace = TraceBuilder()
    main, backward = trace.thread(), trace.thread()
    main.step(0, at=0, us=1000)
    main.annotation(forward, at=0, us=400)
    main.op("aten::flatten_dense_tensors", at=0, us=10)
    main.op("c10d::broadcast_", at=10, us=5)
    main.op("aten::unflatten_dense_tensors", at=15, us=5)
    for i in range(1, 20):
        _launched(main, "aten::copy_" if i <= copies else "aten::mul", 20 * i)
    for i in range(20, 50):
        name = bucket if bucket and i >= 45 else "autograd::engine::evaluate_function: MulBackward0"
        backward.op(name, at=20 * i, us=19)
        _launched(backward, "aten::copy_", 20 * i)
    return facts_of(trace, folder)


def test_buffers_that_ddp_broadcasts(tmp_path: Path) -> None:
    facts = _step(tmp_path)
    spans = facts.launches.ddp_copies.buffers
    assert (spans.start.tolist(), spans.end.tolist()) == ([0], [118_000])  # to the end of the fifth copy
    found = finding(RULE.check(facts))
    # 15 µs of packing and unpacking (the broadcast itself is communication), 16 µs before each of the copies
    assert figures(found)[BUFFERS] == (duration(95_000), share_of(95_000, found.cost_ns, "of this time"))
    assert found.fix.text.startswith("Pass broadcast_buffers=False to DistributedDataParallel.")
    assert "torch.compile" in found.fix.code  # the rest of the finding keeps its fix
    assert GRADIENTS not in figures(found)


def test_buckets_that_ddp_copies_into_gradients(tmp_path: Path) -> None:
    facts = _step(tmp_path, forward="forward", bucket="torch.distributed.ddp.reducer::copy_bucket_to_grad")
    spans = facts.launches.ddp_copies.gradients
    assert (spans.start.tolist(), spans.end.tolist()) == ([900_000], [999_000])
    found = finding(RULE.check(facts))
    assert GRADIENTS in figures(found)
    assert BUFFERS not in figures(found)
    assert "gradient_as_bucket_view=True" in found.fix.code


def test_a_small_part_does_not_change_the_fix(tmp_path: Path) -> None:
    found = finding(RULE.check(_step(tmp_path, copies=4)))  # 79 of 799 µs
    assert BUFFERS not in figures(found)
    assert "DistributedDataParallel" not in found.fix.code


def test_copies_outside_of_ddp_are_not_its_buffers(tmp_path: Path) -> None:
    found = finding(RULE.check(_step(tmp_path, forward="## forward ##")))
    assert BUFFERS not in figures(found)
