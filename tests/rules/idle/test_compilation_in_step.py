from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.idle.compilation_in_step import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import Predicted, with_saving
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import EPOCH_NS, CompileLogBuilder, HostThread, TraceBuilder
from tests.rules.stage import facts_of, figures, finding, findings, is_clear, one_gap, severity


def _load_module(main: HostThread, at: float, us: float) -> None:
    main.call("cuModuleLoadData", at=at, us=us)


def _dynamo(main: HostThread, at: float, us: float) -> None:
    main.frame("torch/_dynamo/convert_frame.py(1053): __call__", at=at, us=us)


def _triton(main: HostThread, at: float, us: float) -> None:
    main.frame("triton/compiler/compiler.py(226): compile", at=at, us=us)


@pytest.mark.parametrize("act", [_load_module, _dynamo, _triton])
def test_fires_on_idle_under_every_kind_of_compilation(act: object, tmp_path: Path) -> None:
    assert callable(act)
    found = finding(RULE.check(facts_of(one_gap(act, 40), tmp_path)))
    assert found.cost_ns == 40_000


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_load_module, 19), tmp_path)))


def _recompiling(steps: dict[int, int | None], count: int = 6) -> TraceBuilder:
    """Build steps of 1,000 µs. Those in `steps` compile a function and are idle for 500 µs; the values say
    how often it had been compiled before, None if the trace does not say."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(count):
        at = step * 1000.0
        main.step(step, at=at, us=1000)
        main.frame("train.py(12): train_step", at=at, us=1000)
        idle = 500 if step in steps else 0
        if idle:
            main.frame("torch/_dynamo/convert_frame.py(1647): _compile", at=at + 5, us=490)
            main.op("_compile.compile_inner (dynamo_timed)", at=at + 10, us=480)
            main.frame("/tmp/torchinductor_me/x/abc.py(10): <module>", at=at + 100, us=200)
        before = steps.get(step)
        if before is not None:
            main.op(f"Torch-Compiled Region: 3/{before}", at=at + 500, us=40)
        main.launch("gemm", at=at + idle + 5, us=5, runs_at=at + idle + 12, runs_us=980 - idle)
    return trace


def test_names_the_recompiled_function_its_caller_and_its_steps(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_recompiling({1: 1, 4: 2}), tmp_path)))
    evidence = figures(found)
    assert found.title.startswith("Recompilation")
    assert "mark_dynamic" in found.fix.code
    assert evidence["Compiled functions"] == (number(2),)
    assert evidence["Steps with compilation"] == (number(2, "step"), "ProfilerStep#1", "ProfilerStep#4")
    caller = "called from “train_step (train.py, defined at line 12)”"
    assert [(e.value, *e.details) for e in found.evidence if e.label == "Function “3”"] == [
        (duration(480_000), caller, number(1, "earlier compilation"), "in ProfilerStep#1"),
        (duration(480_000), caller, number(2, "earlier compilation"), "in ProfilerStep#4"),
    ]
    assert [(p.file, p.line) for p in found.places] == [("train.py", 12)]


@pytest.mark.parametrize(
    ("steps", "recompiled"),
    [
        ({0: 0}, False),  # for the first time
        ({0: 0, 3: 0}, False),  # another function for the first time
        ({3: 1}, True),
        ({0: 0, 1: 1}, False),  # the second step showed that a size changes, and that was all
        ({0: None, 4: None}, True),  # the trace does not say so, but steady steps compile
        ({4: None}, False),
    ],
)
def test_distinguishes_recompilation_from_the_warm_up(
    steps: dict[int, int | None], recompiled: bool, tmp_path: Path
) -> None:
    found = finding(RULE.check(facts_of(_recompiling(steps), tmp_path)))
    assert found.title.startswith("Recompilation") is recompiled
    assert ("mark_dynamic" in found.fix.code) is recompiled


def test_without_stacks_it_uses_the_spans_of_the_compiler(tmp_path: Path) -> None:
    trace = _recompiling({1: 1, 4: 2})
    trace.recording.host = [span for span in trace.recording.host if span.kind != "frame"]
    evidence = figures(finding(RULE.check(facts_of(trace, tmp_path))))
    assert evidence["Compiled functions"] == (number(2),)
    assert evidence["Function “3”"][:2] == (duration(480_000), number(2, "earlier compilation"))


def test_loading_is_a_finding_of_its_own(tmp_path: Path) -> None:
    def both(main: HostThread, at: float, us: float) -> None:
        main.frame("triton/compiler/compiler.py(226): compile", at=at, us=us - 60)
        main.call("cuModuleLoadData", at=at + 10, us=20)  # by Triton: compiling
        main.call("cuModuleLoadData", at=at + us - 60, us=60)

    compiled, loaded = findings(RULE.check(facts_of(one_gap(both, 200), tmp_path)))
    assert (compiled.cost_ns, loaded.cost_ns) == (140_000, 60_000)
    assert "Loading" in loaded.title
    assert "CUDA_MODULE_LOADING=EAGER" in loaded.fix.code
    assert figures(loaded)["Loading calls"] == (number(1),)


def test_a_compilation_that_is_seen_once_promises_nothing(tmp_path: Path) -> None:
    facts = facts_of(one_gap(_dynamo, 600), tmp_path)
    found = finding(RULE.check(facts))
    assert found.records_again
    assert severity(RULE, found, facts) == Severity.WARNING
    assert with_saving(found, facts, Predicted(facts.replay, facts.unslowed)).saving is None


SIZE = "tensor 'x' size mismatch at index 0. expected 8, actual 9"


def _logged(log: CompileLogBuilder, tmp_path: Path) -> Facts:
    """Facts of the second and fifth of six steps that recompile, with the log beside the trace."""
    log.write(tmp_path)
    return read_facts(only_trace(str(_recompiling({1: 1, 4: 2}).write(tmp_path))))


def _start_ns(step: int) -> int:
    return EPOCH_NS + (step * 1_000 + 10) * 1_000


def _log_of(first: str, second: str) -> CompileLogBuilder:
    log = CompileLogBuilder()
    for step, id, guard in ((1, "3/1", first), (4, "3/2", second)):
        log.artifact("recompile_reasons", id, f"3/0: {guard}")
        log.metrics(
            id,
            "forward",
            "/me/model.py",
            12,
            start_ns=_start_ns(step),
            us=480,
            inductor_fx_local_cache_miss_count=1,
        )
    return log


def test_the_log_says_which_guard_failed_and_what_it_cost(tmp_path: Path) -> None:
    found = finding(RULE.check(_logged(_log_of(SIZE, "k == 1"), tmp_path)))
    evidence = figures(found)
    assert evidence["A tensor has another size"] == (duration(480_000), number(1, "compilation"))
    assert evidence["A Python value has changed"] == (duration(480_000), number(1, "compilation"))
    assert evidence["Cache misses"][:2] == (number(2, "compilation"), duration(960_000))
    functions = [e.details for e in found.evidence if e.label == "Function “forward”"]
    assert [details[0] for details in functions] == [f"“{SIZE}”", "“k == 1” did not hold"]
    assert functions[0][1] == "defined in “model.py”, line 12"
    assert f"The longest one, of “forward”: “{SIZE}”." in found.summary
    assert "TORCH_TRACE" not in found.fix.code


@pytest.mark.parametrize(
    ("guard", "fix"),
    [
        (SIZE, "mark_dynamic"),
        ("G['SCALE'] == 2.0", "torch.tensor(scale)"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype=torch.float32"),
        ("GLOBAL_STATE changed: grad_mode", "torch.no_grad()"),
        ("___check_obj_id(fn, 139645370122560)", "Make it once"),
    ],
)
def test_the_fix_fits_what_changed(guard: str, fix: str, tmp_path: Path) -> None:
    assert fix in finding(RULE.check(_logged(_log_of(guard, guard), tmp_path))).fix.code


def test_braces_in_a_guard_stay_as_they_are(tmp_path: Path) -> None:
    guard = "L['options'] == {'a': {0}, 'waits': '{waits}'}"
    assert guard in finding(RULE.check(_logged(_log_of(guard, guard), tmp_path))).summary


def test_without_a_log_the_fix_says_how_to_record_one(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_recompiling({1: 1, 4: 2}), tmp_path)))
    assert "TORCH_TRACE=" in found.fix.code
    assert "mark_dynamic" in found.fix.code


def test_the_log_of_another_process_is_said_to_be_no_help(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.metrics("3/1", "forward", "/me/model.py", 12, start_ns=_start_ns(0) - 10**13)
    evidence = figures(finding(RULE.check(_logged(log, tmp_path))))
    assert evidence["Log of torch.compile"][:2] == (number(0), "of 2 compilations are in the log")
    assert "Function “3”" in evidence


def test_without_steps_a_compilation_is_first_run_work_and_comes_first(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::mm", at=0, us=50)
    main.launch("gemm", at=10, us=10, runs_at=30, runs_us=100)
    _dynamo(main, at=60, us=4_000)
    for i in range(40):
        main.op(f"aten::add_{i}", at=4_100 + 50 * i, us=40)
        main.launch(f"add_{i}", at=4_110 + 50 * i, us=10, runs_at=4_125 + 50 * i, runs_us=20)
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == "initialization"
    assert run_rules(facts, RULES).findings[0].rule.id == "GD104"
