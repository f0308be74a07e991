from __future__ import annotations

from pathlib import Path

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_path
from tests.builder import EPOCH_NS, CompileLogBuilder, TraceBuilder
from tests.report.reports import ranges_of, rows_of
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
    report = reported(tmp_path)
    log = report.compile_log
    assert (log.torch, log.malformed_entries, list(log.notes)) == ("2.13.0+cpu", 0, [])
    (first,) = rows_of(report, "compilations")
    assert (first["id"], first["before"]) == ("3/1", 1)
    assert first["time"] == first["logged"] == 900
    assert first["function"] == f"loss ({FILE}, defined at line 9)"
    assert first["why"] == "“mode == 'train'” did not hold"
    assert (first["not_cached"], first["step"]) == ("FX graph", "ProfilerStep#1")
    assert ranges_of(report, "compilations") == [(2_000, 2_900, -1)]
    earlier = rows_of(report, "earlier_compilations")
    assert [(row["id"], row["logged"], "time" in row) for row in earlier] == [
        ("6/0", 0, False),
        ("5/0", 700, False),
    ]


def test_breaks_and_functions_without_graphs_have_their_runs_and_time(tmp_path: Path) -> None:
    report = reported(tmp_path)
    (broken,) = rows_of(report, "graph_breaks")
    assert (broken["runs"], broken["between_graphs"], broken["compilations"]) == (2, 100, 1)
    assert str(broken["at"]).startswith(f"{FILE}:24 ")
    assert "`print`" in str(broken["reason"])
    (without,) = rows_of(report, "without_graphs")
    assert without["reason"] == "mutated inputs (1 instances)"
    assert (without["runs"], without["host_time"]) == (2, 1_200)


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
    report = reported(tmp_path, compiled_at_us=9_000_000)
    for id in ("compilations", "earlier_compilations", "graph_breaks", "without_graphs"):
        assert not rows_of(report, id)
    (note,) = report.compile_log.notes
    assert note.startswith("0 of the 1 compilations in the recording are in it")


def test_without_a_log_there_is_no_message(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("Torch-Compiled Region: 5/0", at=0, us=600)
    report = diagnose_path(str(trace.write(tmp_path)))
    assert not report.HasField("compile_log")
    assert "Log of torch.compile" not in to_text([report])
