from __future__ import annotations

from pathlib import Path

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_path
from tests.builder import EPOCH_NS, CompileLogBuilder, TraceBuilder
from tests.report.views.formats import to_text
from tests.trace.compile_log.test_read_log import PRINT_BREAK

FILE = "/me/train.py"


def reported(tmp_path: Path, *, compiled_at_us: int = 2_000) -> pb.Report:
    """Report of two steps. In the second, function 3 is compiled again; function 5 breaks its graph in each,
    and runs without CUDA graphs."""
    trace, log = TraceBuilder(), CompileLogBuilder()
    main = trace.thread()
    for step, at in ((0, 0), (1, 2_000)):
        main.step(step, at=at, us=2_000)
        main.op("Torch-Compiled Region: 5/0", at=at + 1_200, us=600)
        main.op("## Call CompiledFxGraph f1 ##", at=at + 1_210, us=90)
        main.op("Torch-Compiled Region: 6/0", at=at + 1_350, us=100)
    main.op("_compile.compile_inner (dynamo_timed)", at=2_000, us=900)
    main.op("Torch-Compiled Region: 3/1", at=2_950, us=40)
    log.artifact("dynamo_graph_break_reason", "5/0", PRINT_BREAK)
    skipped = "skipping cudagraphs due to mutated inputs (1 instances)"
    before_ns = EPOCH_NS - 10**9
    log.metrics("5/0", "forward", FILE, 20, start_ns=before_ns, us=700, cudagraph_skip_reason=skipped)
    log.metrics("6/0", "torch_dynamo_resume_in_forward_at_24", FILE, 24, start_ns=before_ns)
    log.artifact("recompile_reasons", "3/1", "3/0: mode == 'train'")
    miss = {"inductor_fx_local_cache_miss_count": 1}
    log.metrics("3/1", "loss", FILE, 9, start_ns=EPOCH_NS + compiled_at_us * 1_000, us=900, **miss)
    log.write(tmp_path)
    return diagnose_path(str(trace.write(tmp_path)))


def test_compilations_of_the_recording_come_first_with_their_time(tmp_path: Path) -> None:
    log = reported(tmp_path).compile_log
    assert (log.torch, log.malformed_entries, list(log.notes)) == ("2.13.0+cpu", 0, [])
    first, *others = log.compilations
    assert (first.id, first.before, first.place.us, first.logged_us) == ("3/1", 1, 900, 900)
    assert (first.place.function, first.place.line) == ("loss", 9)
    assert list(first.reasons) == ["“mode == 'train'” did not hold"]
    assert (list(first.misses), first.step) == (["FX graph"], "ProfilerStep#1")
    assert [(r.start_us, r.end_us) for r in first.ranges] == [(2_000, 2_900)]
    assert [(c.id, c.place.us, c.logged_us) for c in others] == [("6/0", 0, 0), ("5/0", 0, 700)]


def test_breaks_and_functions_without_graphs_have_their_runs_and_time(tmp_path: Path) -> None:
    log = reported(tmp_path).compile_log
    (broken,) = log.breaks
    assert (broken.place.line, broken.runs, broken.place.us, broken.compilations) == (24, 2, 100, 1)
    assert "`print`" in broken.reason
    (without,) = log.without_graphs
    assert (without.reason, without.runs, without.place.us) == ("mutated inputs (1 instances)", 2, 1_200)


def test_the_text_has_a_table_for_each(tmp_path: Path) -> None:
    text = to_text([reported(tmp_path)])
    for part in (
        "Compilations\n",
        "Graph breaks\n",
        "Without CUDA graphs\n",
        "of torch 2.13.0+cpu: 6 entries",
    ):
        assert part in text
    assert f"{FILE}:24 in forward" in text


def test_a_log_of_another_time_says_nothing_but_that(tmp_path: Path) -> None:
    log = reported(tmp_path, compiled_at_us=9_000_000).compile_log
    assert not [*log.compilations, *log.breaks, *log.without_graphs]
    (note,) = log.notes
    assert note.startswith("0 of the 1 compilations in the recording are in it")


def test_without_a_log_there_is_no_message(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("Torch-Compiled Region: 5/0", at=0, us=600)
    report = diagnose_path(str(trace.write(tmp_path)))
    assert not report.HasField("compile_log")
    assert "Log of torch.compile" not in to_text([report])
