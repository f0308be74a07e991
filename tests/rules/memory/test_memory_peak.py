from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.memory.memory_peak import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import share_of, size
from tests.builder import HostThread, SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, fail_allocation, job, only
from tests.rules.stage import cannot_tell, facts_of, figures, healthy, is_clear, without_gpu
from tests.simulator import simulate


@pytest.mark.parametrize(("taken", "fires"), [(83, True), (81, False)])
def test_fires_if_the_peak_leaves_less_than_a_tenth(taken: int, fires: bool, tmp_path: Path) -> None:
    trace = job([0] * 5, start=8 * MIB, taken=taken * MIB, device_bytes=100 * MIB)
    answer = RULE.check(facts_of(trace, tmp_path))
    if not fires:
        assert is_clear(answer)
        return
    found = only(answer)
    assert found.severity is Severity.WARNING
    assert str(share_of(9, 100)) in found.title
    assert figures(found)["Free at the peak"] == (size(9 * MIB), share_of(9, 100, "of the capacity"))
    assert found.cost_bytes == taken * MIB  # memory allocated before the recording does not count


@pytest.mark.parametrize(("at", "severity"), [(450, Severity.ERROR), (215, Severity.WARNING)])
def test_a_failed_allocation_is_an_error_unless_the_job_went_on(
    at: float, severity: Severity, tmp_path: Path
) -> None:
    """Free memory does not matter. The last step allocates at 415 µs."""
    trace = job([0] * 5)
    fail_allocation(trace, 64 * MIB, at=at, reserved=16 * MIB)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert found.severity is severity
    assert "ran out of memory" in found.title
    assert ("went on" in found.summary) is (severity is Severity.WARNING)


def test_a_cache_freed_to_get_memory_is_found(tmp_path: Path) -> None:
    for reserved, fires in ((50, True), (49, False)):
        trace = job([0] * 5, reserved=reserved * MIB, device_bytes=100 * MIB)
        main = trace.thread()
        main.op("aten::empty", at=475, us=20).call("cudaFree", at=477, us=5).call("cudaMalloc", at=484, us=5)
        main.alloc(512, at=490, reserved=reserved * MIB - 1024)
        answer = RULE.check(facts_of(trace, tmp_path / str(reserved)))
        if fires:
            assert "free its cache 1 time" in only(answer).title
        else:
            assert is_clear(answer)


def test_a_cache_that_is_emptied_by_hand_while_memory_is_full_is_said_first(tmp_path: Path) -> None:
    trace = job([0] * 5, start=92 * MIB, reserved=98 * MIB, device_bytes=100 * MIB)
    main = trace.thread()
    main.call("cudaFree", at=200, us=40).alloc(512, at=245, reserved=97 * MIB)
    facts = facts_of(trace, tmp_path)
    found = only(RULE.check(facts))
    assert "Emptying the cache takes 8" in found.title
    assert "torch.cuda.empty_cache()" in found.summary
    assert found.fix.text.startswith("Remove torch.cuda.empty_cache()")
    assert "The allocator's cache was emptied 1 time" in find_verdict(facts).sentence


def test_memory_from_before_the_recording_is_sharded_only_in_a_training(tmp_path: Path) -> None:
    codes = []
    for training in (False, True):
        trace = job([0] * 5, start=92 * MIB, device_bytes=100 * MIB)
        if training:
            trace.thread().annotation("Optimizer.step#SGD.step", at=95, us=2)
        codes.append(only(RULE.check(facts_of(trace, tmp_path / str(training)))).fix.code)
    assert ["fully_shard" in code for code in codes] == [False, True]


def test_a_server_fills_the_memory_on_purpose(tmp_path: Path) -> None:
    trace = job([0] * 5, start=92 * MIB, device_bytes=100 * MIB)
    trace.thread().op("vllm::moe_forward", at=95, us=2)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_healthy_job_has_room(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(job([0] * 5), tmp_path)))


def test_cannot_tell_without_memory_gpu_or_totals(tmp_path: Path) -> None:
    for number, trace in enumerate((healthy(), without_gpu(), job([0] * 5, generation="A"))):
        assert cannot_tell(RULE.check(facts_of(trace, tmp_path / str(number))))


def test_activations_get_checkpointing_and_smaller_batches(tmp_path: Path) -> None:
    facts = Facts(read_trace(str(simulate("little_room").write(tmp_path))))
    found = only(RULE.check(facts))
    assert "activations" in found.summary
    assert "checkpoint(" in found.fix.code
    assert "scaled_dot_product_attention" not in found.fix.code  # the job has no attention
    assert found.places[0].operator == "aten::addmm"


def _inference(main: HostThread, at: float) -> None:
    """Allocate the output of a layer and free it after the next layer."""
    main.op("aten::linear", at=at + 5, us=20)
    first = main.alloc(85 * MIB, at=at + 10)
    main.free(first, at=at + 30)


def _optimizer(main: HostThread, at: float) -> None:
    """Allocate temporaries as large as the weights."""
    main.annotation("Optimizer.step#Adam.step", at=at + 40, us=40).op("aten::_foreach_mul", at=at + 45, us=20)
    first = main.alloc(85 * MIB, at=at + 50)
    main.free(first, at=at + 60)
    main.op("aten::_foreach_add_", at=at + 68, us=5)
    main.free(main.alloc(512, at=at + 70), at=at + 71)


def _gradients(main: HostThread, at: float) -> None:
    """Keep gradients until after the next step's forward pass."""
    main.op("aten::linear", at=at + 5, us=10)
    activation = main.alloc((60 if at else 58) * MIB, at=at + 8)  # keeps the peak out of the first step
    main.annotation("Optimizer.zero_grad#SGD.zero_grad", at=at + 20, us=8)
    if at:
        main.free(GRADIENT, at=at + 22)
    main.op("autograd::engine::evaluate_function: MmBackward0", at=at + 30, us=20)
    main.op("aten::mm", at=at + 32, us=15)
    main.alloc(30 * MIB, at=at + 35, address=GRADIENT)
    main.free(activation, at=at + 40)


GRADIENT = 0x1000


@pytest.mark.parametrize(
    ("allocate", "advice", "other_advice"),
    [
        (_inference, "torch.inference_mode()", "checkpoint("),
        (_optimizer, "fused=True", "torch.inference_mode()"),
        (_gradients, "zero_grad(set_to_none=True)", "fused=True"),
    ],
)
def test_the_advice_fits_what_the_peak_consists_of(
    allocate: Callable[[HostThread, float], None], advice: str, other_advice: str, tmp_path: Path
) -> None:
    trace = TraceBuilder(device_bytes=96 * MIB)
    trace.recording.memory_start[0] = 4 * MIB
    main = trace.thread()
    for step in range(4):
        main.step(step, at=step * 100.0, us=98)
        allocate(main, step * 100.0)
    code = only(RULE.check(facts_of(trace, tmp_path))).fix.code
    assert advice in code
    assert other_advice not in code


OPTIMIZER = "/opt/lib/python3.11/site-packages/torch/optim/adamw.py(220): step"


@pytest.mark.parametrize(("activations", "requested"), [(2, 10), (72, 80)])
def test_after_a_leak_filled_the_memory_its_fix_leads(
    activations: int, requested: int, tmp_path: Path
) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(40 * MIB, at=0)
    snapshot.segment(activations * MIB, at=0)
    at = 100
    for step in range(8):
        taken = snapshot.allocate(activations * MIB, at=at + 10, stack=["train.py(4): train"])
        snapshot.free(taken, at=at + 20)
        update = snapshot.allocate(MIB, at=at + 30, stack=["train.py(5): train", OPTIMIZER])
        snapshot.free(update, at=at + 40)
        if step < 7:
            snapshot.allocate(4 * MIB, at=at + 50, stack=["train.py(9): keep"])
        at += 100
    snapshot.out_of_memory(requested * MIB, at=at, device_free=5 * MIB)
    facts = Facts(read_trace(str(snapshot.write(tmp_path))))
    (memory,) = facts.memory
    assert memory.capacity_bytes == (activations + 45) * MIB  # reserved, and what the driver had free
    found = [one for one in run_rules(facts, RULES).findings if one.rule.id in ("GD401", "GD402")]
    assert [one.rule.id for one in found] == ["GD401", "GD402"]
    assert [one.severity for one in found] == [Severity.ERROR, Severity.ERROR]
    text = found[1].finding.fix.text
    assert text.startswith("First fix the leak")
    assert "train.py:9" in text
    assert "smaller batch" not in text
    assert found[0].finding.cost_bytes_per_step == 4 * MIB
    assert "until it is full" in find_verdict(facts).sentence


def test_streams_are_addresses_of_any_size(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(40 * MIB, at=0)
    for step in range(8):
        snapshot.allocate(4 * MIB, at=100 * step + 50, stack=["train.py(9): keep"])
    snapshot.out_of_memory(80 * MIB, at=900, device_free=5 * MIB)
    path = snapshot.write(tmp_path)
    content = pickle.loads(path.read_bytes())
    for entry in [*content["segments"], *content["device_traces"][0]]:
        entry["stream"] = (1 << 63) - 1
    path.write_bytes(pickle.dumps(content))
    outcome = run_rules(Facts(read_trace(str(path))), RULES)
    assert "GD402" in [one.rule.id for one in outcome.findings]
    assert not [answer.reason for _, answer in outcome.unchecked if answer.defect]
