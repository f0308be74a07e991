"""Engine steps of inference servers: which they are, and what the GPU does in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.stepping.serving_times import BETWEEN_STEPS, NO_BATCH, Serving
from tb_gpudiag.rules.idle.step_variance import RULE as VARIANCE
from tb_gpudiag.rules.recording.warmup_recorded import RULE as WARMUP
from tb_gpudiag.vocabulary.engines import StepKind
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import facts_of, is_clear

SGLANG = "/sgl/python/sglang/srt/managers/scheduler.py"
RUN = f"{SGLANG}(3006): run_batch"


def _step(main: HostThread, mark: str, at: float, *, busy: float, sampled: bool = True) -> None:
    """A step that launches after 100 µs for 20 µs; its GPU work begins at once. It samples after its mark."""
    main.annotation(mark, at=at, us=150)
    main.launch("gemm", at=at + 100, us=20, runs_at=at + 120, runs_us=busy)
    if sampled:
        main.launch("sample", at=at + 160, us=5, runs_at=at + 120 + busy, runs_us=10)


def _served(*steps: tuple[str, float, float]) -> TraceBuilder:
    """(mark, start, µs of GPU work) of each step."""
    trace = TraceBuilder()
    main = trace.thread()
    main.op("vllm::moe_forward", at=0, us=1)
    for mark, at, busy in steps:
        _step(main, mark, at, busy=busy)
    return trace


def _serving(trace: TraceBuilder, folder: Path) -> Serving:
    found = facts_of(trace, folder).serving
    assert found is not None
    return found


DECODE = "execute_context_0(0)_generation_8(8)"
PREFILL = "execute_context_2(4096)_generation_0(0)"


def test_steps_of_a_server_are_the_steps_of_the_report(tmp_path: Path) -> None:
    """A step ends where the next one begins on the GPU: sampling, after the mark, belongs to it."""
    facts = facts_of(_served((PREFILL, 100, 3_000), (DECODE, 3_300, 500), (DECODE, 4_100, 500)), tmp_path)
    assert facts.steps.names == ["prefill 1", "decode 2", "decode 3"]
    assert facts.recorded.steps
    assert facts.inferred_steps is None
    found = facts.serving
    assert found is not None
    assert found.length_ns.tolist() == [3_200_000, 800_000, 630_000]
    assert found.busy_ns.tolist() == [3_010_000, 510_000, 510_000]
    # From the end of sampling to the first work of the step; none is known for the first one.
    assert found.gap_ns.tolist() == [-1, 190_000, 290_000]


def test_idle_steps_at_the_ends_are_no_steps(tmp_path: Path) -> None:
    """With data parallelism, an idle engine in the middle runs along, and its steps count."""
    idle = "execute_context_0(0)_generation_0(0)"
    marks = [idle, PREFILL, idle, DECODE, idle, idle]
    steps = [(mark, 100 + 1_000 * number, 300.0) for number, mark in enumerate(marks)]
    facts = facts_of(_served(*steps), tmp_path)
    assert facts.steps.names == ["prefill 1", "idle 2", "decode 3"]
    assert facts.steps.end_ns[-1] == facts.steps.start_ns[-1] + 1_000_000


def test_kinds_are_apart(tmp_path: Path) -> None:
    trace = _served((PREFILL, 100, 3_000), (DECODE, 3_300, 500), (DECODE, 4_100, 300))
    prefill, decode = _serving(trace, tmp_path).kinds()
    assert (prefill.kind, prefill.steps, prefill.requests, prefill.tokens) == (StepKind.PREFILL, 1, 2, 4096)
    assert prefill.tokens_per_s == pytest.approx(4096 / 3.2e-3)
    assert (decode.kind, decode.steps, decode.requests, decode.tokens) == (StepKind.DECODE, 2, 8, 8)
    assert decode.tokens_per_s == pytest.approx(16 / (800e-6 + 430e-6))
    assert decode.busy == pytest.approx((510 + 310) / (800 + 430))


def test_a_prefill_before_decodes_is_no_warm_up(tmp_path: Path) -> None:
    steps = [(DECODE, 9_000.0 + 700 * i, 400.0) for i in range(5)]
    assert facts_of(_served((PREFILL, 100, 8_000), *steps), tmp_path).steps.names[0] == "prefill 1"


def test_a_lone_step_is_measured_over_the_whole_window(tmp_path: Path) -> None:
    """What comes before and after it may belong to other steps."""
    facts = facts_of(_served((DECODE, 300, 500)), tmp_path)
    assert not len(facts.recorded_steps)
    found = facts.serving
    assert found is not None
    assert found.length_ns.tolist() == [facts.window.duration_ns]


def test_marks_of_one_batch_are_one_step(tmp_path: Path) -> None:
    """SGLang's detailed marks contain its plain ones, and a model that drafts tokens has marks in the run."""
    trace = TraceBuilder()
    main = trace.thread()
    for at in (100.0, 1_100.0, 2_100.0):
        main.frame(RUN, at=at, us=700)
        main.annotation("execute_8_context_8(sq8sk8)_generation_0(sq0sk0)", at=at + 10, us=200)
        main.annotation("step[EXTEND bs=8 toks=8]", at=at + 20, us=180)
        main.launch("gemm", at=at + 50, us=10, runs_at=at + 60, runs_us=300)
        main.annotation("step[EXTEND bs=8 toks=8]", at=at + 300, us=100)  # of the model that drafts
        main.launch("draft", at=at + 350, us=10, runs_at=at + 400, runs_us=100)
    facts = facts_of(trace, tmp_path)
    assert facts.steps.names == ["prefill 1", "prefill 2", "prefill 3"]


def test_with_speculation_a_step_is_what_verifies(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at in (100.0, 1_100.0):
        main.annotation("step[DECODE bs=4]", at=at, us=90)
        main.launch("draft", at=at + 50, us=10, runs_at=at + 60, runs_us=50)
        main.annotation("step[TARGET_VERIFY bs=4]", at=at + 200, us=90)
        main.launch("gemm", at=at + 250, us=10, runs_at=at + 260, runs_us=300)
        main.annotation("step[DRAFT_EXTEND bs=4]", at=at + 600, us=90)
    found = _serving(trace, tmp_path)
    assert found.account.names == ["decode 1", "decode 2"]
    assert found.kinds()[0].tokens_per_s == -1  # how many of the tokens are right, no mark says


def test_without_marks_the_function_that_runs_the_model_is_a_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for number, inner in enumerate(("forward_extend", "forward_decode", "forward_decode", "other")):
        at = 100 + 1_000 * number
        main.frame(RUN, at=at, us=500)
        main.frame(f"/sgl/sglang/srt/model_executor/model_runner.py(3194): {inner}", at=at + 50, us=400)
        main.launch("gemm", at=at + 100, us=10, runs_at=at + 120, runs_us=300)
    found = _serving(trace, tmp_path)
    assert found.account.names == ["prefill 1", "decode 2", "decode 3", "forward 4"]
    assert not found.marked
    assert {kind.requests for kind in found.kinds()} == {-1}


def test_a_run_that_launches_nothing_after_the_last_answer_is_no_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for number, us in enumerate((4_000.0, 1_000.0, 1_000.0, 1_000.0)):
        at = 100 + 4_000 * min(number, 1) + 1_000 * max(0, number - 1)
        main.frame(RUN, at=at, us=us - 200)
        main.launch("gemm", at=at + 100, us=10, runs_at=at + 120, runs_us=us - 300)
    main.frame(RUN, at=7_100, us=20)
    facts = facts_of(trace, tmp_path)
    assert facts.all_steps.names == ["forward 1", "forward 2", "forward 3", "forward 4"]
    # The first one may be a prefill.
    assert is_clear(WARMUP.check(facts))
    assert is_clear(VARIANCE.check(facts))


def test_a_training_has_no_engine_steps(tmp_path: Path) -> None:
    """Reinforcement learning generates with a server's engine between its optimizer's steps."""
    trace = _served((DECODE, 100, 300), (DECODE, 800, 300))
    trace.recording.host.clear()
    main = HostThread(trace, trace.recording.pid)
    main.step(0, at=0, us=3_000)
    _step(main, DECODE, 100, busy=300)
    _step(main, DECODE, 900, busy=300)
    main.annotation("Optimizer.step#AdamW.step", at=2_000, us=100)
    facts = facts_of(trace, tmp_path)
    assert not facts.engine
    assert facts.steps.names == ["ProfilerStep#0"]


def test_idle_time_is_listed_by_the_functions_of_the_engine(tmp_path: Path) -> None:
    """All of it, once: in the gaps before steps, and in the steps. Layers belong to the function that runs
    them."""
    trace = TraceBuilder()
    main = trace.thread()
    for at in (0.0, 1_000.0, 2_000.0):
        main.annotation("step[DECODE bs=4]", at=at, us=450)
        main.frame(RUN, at=at, us=450)
        main.frame("/sgl/sglang/srt/managers/schedule_batch.py(10): prepare", at=at + 10, us=90)
        main.launch("copy", at=at + 100, us=10, runs_at=at + 110, runs_us=100)
        main.frame("/sgl/sglang/srt/models/llama.py(10): forward", at=at + 200, us=200)
        main.launch("gemm", at=at + 380, us=10, runs_at=at + 390, runs_us=400)
    found = _serving(trace, tmp_path)
    assert sum(one.idle_ns for one in found.functions) == int(found.account.idle_ns.sum())
    by_name = {one.name: (one.before_ns, one.inside_ns) for one in found.functions}
    # Its first call is before the first work of the recording, which no earlier work precedes.
    assert by_name["prepare (sglang/srt/managers/schedule_batch.py)"] == (180_000, 90_000)
    assert by_name["run_batch (sglang/srt/managers/scheduler.py)"][1] >= 3 * 170_000
    assert BETWEEN_STEPS in by_name
    assert not any("llama" in name for name in by_name)


def _polling(rounds: int, *, launches: bool) -> TraceBuilder:
    """Two decode steps, and between them rounds of SGLang's scheduler that find no request."""
    trace = TraceBuilder()
    main = trace.thread()
    for at in (0.0, 10_000.0):
        main.frame(RUN, at=at, us=200)
        main.annotation("step[DECODE bs=4]", at=at, us=200)
        main.launch("gemm", at=at + 50, us=10, runs_at=at + 70, runs_us=500)
    for number in range(rounds):
        at = 1_000 + 900 * number
        main.frame(f"{SGLANG}(900): recv_requests", at=at, us=500)
        main.frame(f"{SGLANG}(950): self_check_during_idle", at=at + 600, us=100)
        if launches:
            main.launch("other", at=at + 750, us=5, runs_at=at + 760, runs_us=1)
    return trace


def test_rounds_without_a_request_are_no_work_of_the_host(tmp_path: Path) -> None:
    """From the first round that found none to the last one: 7,300 µs. Before and after, it is not known."""
    facts = facts_of(_polling(9, launches=False), tmp_path)
    found = facts.serving
    assert found is not None
    assert int(found.waiting_ns.sum()) == 7_300_000
    assert facts.gpu.ledger.by_cause(facts.window)[Cause.REQUESTS] == 7_300_000
    assert {one.name: one.idle_ns for one in found.functions}[NO_BATCH] == 7_300_000
    assert not facts.request_waits.for_engine
    # Tokens per second are those of the time in which there was something to do.
    rate = found.kinds()[0].tokens_per_s
    assert rate == pytest.approx(8 / ((int(found.length_ns.sum()) - 7_300_000) / 1e9))


def test_between_launches_each_round_counts_alone(tmp_path: Path) -> None:
    facts = facts_of(_polling(9, launches=True), tmp_path)
    assert int(facts.gpu.ledger.by_cause(facts.window)[Cause.REQUESTS]) == 9 * 100_000


CORE = "/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py"


@pytest.mark.parametrize("inner", ["wait", "notify"])
def test_an_engine_waits_for_requests_only_where_it_blocks(inner: str, tmp_path: Path) -> None:
    """vLLM takes new requests from its queue in the same function."""
    trace = _served((DECODE, 0, 300), (DECODE, 5_000, 300))
    main = HostThread(trace, trace.recording.pid)
    main.frame(f"{CORE}(820): _process_input_queue", at=1_000, us=3_000)
    main.frame(f"/usr/lib/python3.12/threading.py(327): {inner}", at=1_100, us=2_800)
    found = facts_of(trace, tmp_path).serving
    assert found is not None
    assert int(found.waiting_ns.sum()) == (2_800_000 if inner == "wait" else 0)


def test_a_worker_waits_for_its_engine(tmp_path: Path) -> None:
    trace = _served((DECODE, 0, 300), (DECODE, 5_000, 300))
    main = HostThread(trace, trace.recording.pid)
    main.frame("/v/vllm/v1/executor/multiproc_executor.py(700): worker_busy_loop", at=0, us=6_000)
    main.frame("/v/vllm/distributed/device_communicators/shm_broadcast.py(500): dequeue", at=1_000, us=3_000)
    facts = facts_of(trace, tmp_path)
    assert facts.request_waits.for_engine
    found = facts.serving
    assert found is not None
    assert int(found.waiting_ns.sum()) == 3_000_000
