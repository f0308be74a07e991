"""A server without requests: what is said about its idle GPU."""

from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of

SCHEDULER = "/sgl/python/sglang/srt/managers/scheduler.py"
WORKER = "/v/vllm/v1/executor/multiproc_executor.py(700): worker_busy_loop"
QUEUE = "/v/vllm/distributed/device_communicators/shm_broadcast.py(500): dequeue"


def _rarely_used(*, loads: bool) -> TraceBuilder:
    """Four decode steps of 600 µs, each after 9.4 ms of SGLang's scheduler: it polls for requests; or, if it
    `loads`, it processes outputs."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(4):
        at = 10_000.0 * step
        main.frame(f"{SCHEDULER}(3006): run_batch", at=at, us=200)
        main.annotation("step[DECODE bs=1]", at=at, us=200)
        main.launch("gemm", at=at + 50, us=10, runs_at=at + 70, runs_us=500)
        rest = "process_batch_result" if loads else "self_check_during_idle"
        for poll in range(9):
            main.frame(f"{SCHEDULER}(950): {rest}", at=at + 600 + 1_030 * poll, us=1_000)
    return trace


def test_nothing_to_serve_is_no_fault_of_the_host(tmp_path: Path) -> None:
    facts = facts_of(_rarely_used(loads=False), tmp_path / "idle")
    verdict = find_verdict(facts)
    assert verdict.limiter == "requests"
    assert "nothing to run" in verdict.sentence
    found = run_rules(facts, RULES).findings
    assert not [f.rule.id for f in found if f.rule.family in {"idle", "launches"}]
    # The same time in the scheduler's own work is the host's.
    busy = facts_of(_rarely_used(loads=True), tmp_path / "busy")
    assert find_verdict(busy).limiter == "python"
    assert "GD102" in {f.rule.id for f in run_rules(busy, RULES).findings}


def test_a_worker_does_not_know_whether_a_request_was_there(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame(WORKER, at=0, us=40_000)
    for step in range(4):
        at = 10_000.0 * step
        main.annotation("execute_context_0(0)_generation_1(1)", at=at, us=200)
        main.launch("gemm", at=at + 50, us=10, runs_at=at + 70, runs_us=500)
        main.frame(QUEUE, at=at + 300, us=9_600)
    facts = facts_of(trace, tmp_path)
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "waited for its engine's process" in verdict.sentence
    assert "GD102" not in {f.rule.id for f in run_rules(facts, RULES).findings}


def test_a_process_without_a_gpu_that_waits_for_requests(tmp_path: Path) -> None:
    """vLLM's engine runs in a process of its own."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.frame("/v/vllm/v1/engine/core.py(800): run_busy_loop", at=0, us=20_000)
    main.frame("/v/vllm/v1/engine/core.py(820): _process_input_queue", at=1_000, us=18_000)
    main.frame("/usr/lib/python3.12/threading.py(327): wait", at=1_100, us=17_800)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "requests"
    assert "89.0%" in verdict.sentence
