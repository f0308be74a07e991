from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compile_reasons import NO_LOG, CompileReasons, FailedGuard, main_guards
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tests.builder import EPOCH_NS, CompileLogBuilder, HostThread, TraceBuilder
from tests.trace.compile_log.test_read_log import PRINT_BREAK

FILE = "/me/train.py"


def joined(trace: TraceBuilder, log: CompileLogBuilder, folder: Path) -> tuple[Facts, CompileReasons]:
    log.write(folder)
    facts = read_facts(only_trace(str(trace.write(folder))))
    assert facts.compile_reasons is not NO_LOG
    return facts, facts.compile_reasons


def compile_at(main: HostThread, at: float, us: float, region: str = "") -> None:
    main.op("_compile.compile_inner (dynamo_timed)", at=at, us=us)
    if region:
        main.op(f"Torch-Compiled Region: {region}", at=at + us + 1, us=5)


def test_a_compilation_is_found_by_its_start(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    main = trace.thread()
    compile_at(main, 1_000, 100_000)  # without a region, as of functions that fail
    compile_at(main, 500_000, 200_000, "3/1")
    log.metrics("7/0", "first", FILE, 1, start_ns=EPOCH_NS + 1_200_000, us=100_100)
    log.metrics("3/1", "second", FILE, 9, start_ns=EPOCH_NS + 499_800_000, us=200_100)
    facts, found = joined(trace, log, tmp_path)
    assert [c.function for c in found.by_event.values()] == ["first", "second"]
    assert [int(facts.events.duration_ns[e]) for e in found.by_event] == [100_000_000, 200_000_000]
    assert found.is_joined


def test_a_clock_that_differs_a_little_leaves_the_id(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    compile_at(trace.thread(), 500_000, 200_000, "3/1")
    log.metrics("3/0", "f", FILE, 9, start_ns=EPOCH_NS - 10**10)
    log.metrics("3/1", "f", FILE, 9, start_ns=EPOCH_NS + 800_000_000)
    _, found = joined(trace, log, tmp_path)
    assert [c.id for c in found.by_event.values()] == ["3/1"]


def test_a_log_of_another_time_is_not_joined(tmp_path: Path) -> None:
    """It has the same ids: they count from 0 in every process."""
    trace, log = TraceBuilder(), CompileLogBuilder()
    main = trace.thread()
    compile_at(main, 500_000, 200_000, "3/1")
    main.op("Torch-Compiled Region: 5/0", at=800_000, us=50)
    log.artifact("dynamo_graph_break_reason", "5/0", PRINT_BREAK)
    log.metrics("3/1", "f", FILE, 9, start_ns=EPOCH_NS - 3_600 * 10**9)
    _, found = joined(trace, log, tmp_path)
    assert (found.by_event, found.strangers, found.is_joined, found.breaks) == ({}, 1, False, [])


def test_without_compilations_the_process_decides(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("Torch-Compiled Region: 5/0", at=800_000, us=50)
    path = trace.write(tmp_path)
    for pid, is_joined in ((4242, True), (77, False)):
        log = CompileLogBuilder(pid)
        _broken(log)
        file = replace(only_trace(str(path)), torch_trace=str(log.write(tmp_path / str(pid))))
        found = read_facts(file).compile_reasons
        assert (found.is_joined, bool(found.breaks)) == (is_joined, is_joined)


def _broken(log: CompileLogBuilder) -> None:
    log.artifact("dynamo_graph_break_reason", "5/0", PRINT_BREAK)
    log.metrics("5/0", "forward", FILE, 20, start_ns=EPOCH_NS - 10**9)
    log.metrics("6/0", "torch_dynamo_resume_in_forward_at_24", FILE, 24, start_ns=EPOCH_NS - 10**9)
    log.metrics("8/0", "torch_dynamo_resume_in_forward_at_99", FILE, 99, start_ns=EPOCH_NS - 10**9)


def test_a_break_costs_what_is_between_the_graphs(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    _broken(log)
    main = trace.thread()
    for at in (1_000, 2_000):
        main.op("Torch-Compiled Region: 5/0", at=at, us=600)
        main.op("## Call CompiledFxGraph f1 ##", at=at + 10, us=90)
        main.op("Torch-Compiled Region: 6/0", at=at + 150, us=100)
        main.op("## Call CompiledFxGraph f2 ##", at=at + 160, us=80)
        main.op("Torch-Compiled Region: 8/0", at=at + 300, us=100)  # another break
    facts, found = joined(trace, log, tmp_path)
    (runs,) = found.breaks
    assert (runs.runs, runs.between_ns) == (2, 100_000)
    assert facts.events.names[facts.events.name[runs.event]] == "Torch-Compiled Region: 6/0"


def test_between_two_breaks_there_may_be_no_graph(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    _broken(log)
    main = trace.thread()
    main.op("Torch-Compiled Region: 5/0", at=1_000, us=600)
    main.op("Torch-Compiled Region: 6/0", at=1_150, us=100)
    main.op("## Call CompiledFxGraph f2 ##", at=1_160, us=80)
    _, found = joined(trace, log, tmp_path)
    assert [(runs.runs, runs.between_ns) for runs in found.breaks] == [(1, 150_000)]


def test_without_marks_of_graphs_a_break_has_runs_and_no_time(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    _broken(log)
    main = trace.thread()
    main.op("Torch-Compiled Region: 5/0", at=1_000, us=600)
    main.op("Torch-Compiled Region: 6/0", at=1_150, us=100)
    main.op("## Call CompiledFxGraph f1 ##", at=2_000, us=90)  # of another function
    _, found = joined(trace, log, tmp_path)
    assert [(runs.runs, runs.between_ns) for runs in found.breaks] == [(1, 0)]


def test_runs_without_cuda_graphs_are_counted(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    log.metrics("0/0", "f", FILE, 1, cudagraph_skip_reason="skipping cudagraphs due to mutated inputs")
    log.metrics("1/0", "g", FILE, 9)
    main = trace.thread()
    main.op("Torch-Compiled Region: 0/0", at=1_000, us=600)
    main.op("Torch-Compiled Region: 0/0", at=2_000, us=700)
    main.op("Torch-Compiled Region: 1/0", at=3_000, us=100)
    _, found = joined(trace, log, tmp_path)
    assert {w.compilation.id: (w.runs, w.host_ns) for w in found.without_graphs} == {"0/0": (2, 1_300_000)}


def test_what_had_not_failed_before_comes_first(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    size = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
    log.metrics("0/0", "f", FILE, 1)
    log.artifact("recompile_reasons", "0/1", "0/0: GLOBAL_STATE changed: grad_mode")
    log.metrics("0/1", "f", FILE, 1)
    log.artifact("recompile_reasons", "0/2", ["0/1: GLOBAL_STATE changed: grad_mode", "0/0: s.p == 1.5"])
    log.metrics("0/2", "f", FILE, 1)
    log.artifact("recompile_reasons", "3/2", [f"3/1: {size.format(9, 10)}", f"3/0: {size.format(8, 10)}"])
    log.metrics("3/2", "g", FILE, 9)
    trace = TraceBuilder()
    trace.thread().op("Torch-Compiled Region: 0/2", at=1_000, us=600)
    _, found = joined(trace, log, tmp_path)
    guards = main_guards(found.log.compilations)
    texts = {c.id: [guard.text for guard in some] for c, some in guards.items()}
    mode = "GLOBAL_STATE changed: grad_mode"
    assert texts == {"0/0": [], "0/1": [mode], "0/2": ["s.p == 1.5", mode], "3/2": [size.format(9, 10)]}
    assert guards[found.log.compilations[2]][0] == FailedGuard("s.p == 1.5", "0/0")


def test_ids_start_again_after_a_reset(tmp_path: Path) -> None:
    trace, log = TraceBuilder(), CompileLogBuilder()
    main = trace.thread()
    for at, function in ((1_000_000, "before"), (5_000_000, "after")):
        compile_at(main, at, 200_000, "0/0")
        log.artifact("dynamo_graph_break_reason", "0/0", PRINT_BREAK)
        log.metrics("0/0", function, FILE, 9, start_ns=EPOCH_NS + at * 1_000)
    _, found = joined(trace, log, tmp_path)
    assert [c.function for c in found.by_event.values()] == ["before", "after"]
    assert [(b.met, b.runs) for b in found.breaks] == [(2, 0)]
