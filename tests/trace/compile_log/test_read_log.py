from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpudiag.errors import NotATrace, Unreadable
from tb_gpudiag.trace.compile_log import read_log
from tb_gpudiag.trace.compile_log.log import CompileLog, FailedGuard, NoGraph
from tb_gpudiag.trace.compile_log.read_log import read_compile_log
from tests.builder import EPOCH_NS, CompileLogBuilder
from tests.with_each import with_each

PRINT_BREAK = """Graph break in user code at /me/train.py:24
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.

User code traceback:
  File "/me/train.py", line 52, in <module>
    step(batch)
  File "/me/train.py", line 24, in forward
    print("hello")

Traceback (most recent call last):
  File "/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
    return inner_fn(self, inst)
"""
OLD_BREAK = """Graph break in user code at /me/train.py:7
Reason: Unsupported: call_function BuiltinVariable(print) [ConstantVariable()] {}
User code traceback:
  File "/me/train.py", line 7, in forward
    print("hello")
"""
GIVEN_UP = """Graph break: torch.compile cannot properly resume from this graph break; it is skipped.
torch.compile will skip tracing the frame forward (/me/train.py line 3) and fall back to eager.
The graph break occurred in the following user code:
  File "/me/train.py", line 9, in forward
    with lock:

Traceback (most recent call last):
  File "/torch/_dynamo/convert_frame.py", line 3, in wrapper
"""


def read(log: CompileLogBuilder, folder: Path) -> CompileLog:
    return read_compile_log(str(log.write(folder)))


def test_a_recompilation_has_its_guard_its_place_and_its_time(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    reason = (
        "3/0: G['SCALE'] == 2.0           # return x*SCALE  # me/train.py:13 in g\n"
        'User stack trace:\n  File "/me/train.py", line 13, in g\n    return x*SCALE'
    )
    log.artifact("recompile_reasons", "3/1", reason)
    counts = {"inductor_fx_local_cache_hit_count": 1, "aotautograd_local_cache_miss_count": 2}
    log.metrics("3/1", "g", "/me/train.py", 12, start_ns=EPOCH_NS, us=2_500, **counts)
    found = read(log, tmp_path)
    assert (found.torch, found.pid, found.malformed) == ("2.13.0+cpu", 4242, 0)
    (compiled,) = found.compilations
    assert (compiled.id, compiled.function, compiled.line) == ("3/1", "g", 12)
    assert (compiled.start_ns, compiled.duration_ns) == (EPOCH_NS, 2_500_000)
    assert compiled.guards == (FailedGuard("G['SCALE'] == 2.0", "3/0", "", "/me/train.py", 13),)
    assert (compiled.hits, compiled.misses) == (("FX graph",), ("AOTAutograd",))


def test_the_new_value_comes_from_the_new_guards(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.artifact("recompile_reasons", "0/1", "0/0: mode == 'train'      # mode == 'x'")
    log.entry(
        "dynamo_cpp_guards_str",
        "0/1",
        {},
        "ROOT\n| +- X: 1  # a mode == 'no'\n| +- EQUALS_MATCH: L['mode'] == 'eval'    # f(mode)",
    )
    log.metrics("0/1", "f", "train.py", 1)
    assert read(log, tmp_path).compilations[0].guards[0].now == "mode == 'eval'"


def test_several_reasons_are_a_list(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.artifact("recompile_reasons", "0/2", ["0/1: GLOBAL_STATE changed: grad_mode ", "0/0: k == 1"])
    log.metrics("0/2", "f", "train.py", 1)
    guards = read(log, tmp_path).compilations[0].guards
    assert [(g.of, g.text) for g in guards] == [("0/1", "GLOBAL_STATE changed: grad_mode"), ("0/0", "k == 1")]


def test_torch_before_the_artifact_gave_the_reason_with_the_figures(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.metrics("0/1", "f", "train.py", 1, recompile_reason="0/0: tensor 'x' dtype mismatch")
    assert read(log, tmp_path).compilations[0].guards == (FailedGuard("tensor 'x' dtype mismatch", "0/0"),)


@with_each(
    ("payload", "line", "function", "reason"),
    [
        (PRINT_BREAK, 24, "forward", "Failed to trace builtin operator: Dynamo does not know"),
        (OLD_BREAK, 7, "forward", "Unsupported: call_function BuiltinVariable(print)"),
        (GIVEN_UP, 9, "forward", "torch.compile cannot properly resume from this graph break"),
        ("", 0, "", ""),
    ],
)
def test_a_graph_break_has_its_line_and_reason(
    payload: str, line: int, function: str, reason: str, tmp_path: Path
) -> None:
    log = CompileLogBuilder()
    log.artifact("dynamo_graph_break_reason", "5/0", payload)
    (broken,) = read(log, tmp_path).breaks
    assert (broken.id, broken.line, broken.function) == ("5/0", line, function)
    assert broken.file == ("/me/train.py" if line else "")
    assert reason in broken.reason
    assert "Hint" not in broken.reason
    assert "Traceback" not in broken.reason


def test_cuda_graphs_are_skipped_for_a_reason_and_a_line(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    reason = (
        "skipping cudagraphs due to skipping cudagraphs due to cpu device (arg0_1). Found from : \n"
        '   File "/me/train.py", line 11, in forward\n    return x\n'
    )
    log.metrics("0/0", "forward", "/me/train.py", 10, cudagraph_skip_reason=reason)
    log.metrics("1/0", "other", "/me/train.py", 20)
    first, second = read(log, tmp_path).compilations
    assert first.no_graph == NoGraph("cpu device (arg0_1)", "/me/train.py", 11)
    assert second.no_graph is None


def test_the_backward_pass_is_the_same_compilation(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.metrics("0/0", "f", "train.py", 1, start_ns=EPOCH_NS, us=100)
    log.metrics("0/0", "", "", 0, start_ns=EPOCH_NS + 10**9, us=900, inductor_fx_local_cache_miss_count=1)
    (compiled,) = read(log, tmp_path).compilations
    assert (compiled.function, compiled.duration_ns, compiled.misses) == ("f", 100_000, ("FX graph",))


def test_a_function_that_is_given_up_keeps_its_name(tmp_path: Path) -> None:
    """torch does not name it when the limit of recompilations is exceeded."""
    log = CompileLogBuilder()
    log.metrics("0/0", "f", "train.py", 3)
    log.metrics("0/1", "", "", 0, fail_type="Unsupported", fail_reason="Dynamo recompile limit exceeded\n...")
    found = read(log, tmp_path).compilations[1]
    assert (found.function, found.line) == ("f", 3)
    assert found.failed == "Unsupported: Dynamo recompile limit exceeded"


def test_torch_before_it_counted_caches_had_an_entry_for_each(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.artifact("fx_graph_cache_miss", "0/0", {"key": "f1"})
    log.artifact("aotautograd_cache_hit", "0/0", {"key": "a1"})
    log.metrics("0/0", "f", "train.py", 1)
    (compiled,) = read(log, tmp_path).compilations
    assert (compiled.hits, compiled.misses) == (("AOTAutograd",), ("FX graph",))


def test_whatever_it_does_not_know_is_skipped(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.entry("chromium_event", "0/0", {}, '{\n"ph": "B"\n}')
    log.artifact("something_new", "0/0", ["V1126 not a line of the log"])
    log.metrics("0/0", "f", "train.py", 1)
    found = read(log, tmp_path)
    assert (found.entries, found.malformed, len(found.compilations)) == (4, 0, 1)


@with_each(
    "line",
    [
        "some program's output",
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": {"co_name": "f"',  # cut off
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": 3, "frame_id": 0}',
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": {}, "frame_id": "x/../y"}',
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": {"start_time": "soon"}, "frame_id": 0}',
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": ' + "[" * 100_000,
        'V1126 10:02:47.287000 1 a.py:1] {"compilation_metrics": {"duration_us": ' + "9" * 10_000 + "}}",
        'V1126 10:02:47.287000 1 a.py:1] {"artifact": {"name": "recompile_reasons"}, "has_payload": "0"}',
    ],
)
def test_a_malformed_line_is_counted_and_the_rest_is_read(line: str, tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.lines.append(line)
    log.metrics("0/0", "f", "train.py", 1)
    found = read(log, tmp_path)
    assert found.malformed == 1
    assert [c.function for c in found.compilations] == ["f"]


def test_a_payload_with_another_md5_is_not_believed(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.artifact("recompile_reasons", "0/1", "0/0: k == 1", has_payload="0" * 32)
    log.metrics("0/1", "f", "train.py", 1)
    found = read(log, tmp_path)
    assert (found.malformed, found.compilations[0].guards) == (1, ())


def test_a_log_that_is_still_written_is_read_up_to_its_last_whole_entry(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.metrics("0/0", "f", "train.py", 1)
    log.metrics("1/0", "g", "train.py", 9)
    path = tmp_path / "log"
    path.write_bytes(log.bytes()[:-20])
    assert [c.function for c in read_compile_log(str(path)).compilations] == ["f"]


def test_logs_of_windows_end_lines_otherwise(tmp_path: Path) -> None:
    log = CompileLogBuilder(newline="\r\n")
    log.artifact("recompile_reasons", "0/1", ["0/0: k == 1"])
    log.metrics("0/1", "f", "train.py", 1)
    found = read(log, tmp_path)
    assert (found.malformed, found.compilations[0].guards[0].text) == (0, "k == 1")


def test_entries_across_blocks_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CompileLogBuilder()
    for number in range(20):
        log.artifact("recompile_reasons", f"{number}/1", [f"{number}/0: k == {number}"] * 3)
        log.metrics(f"{number}/1", f"f{number}", "train.py", 1)
    whole = read(log, tmp_path)
    monkeypatch.setattr(read_log, "BLOCK_BYTES", 97)
    assert read(log, tmp_path) == whole
    assert [len(c.guards) for c in whole.compilations] == [3] * 20


def test_the_rest_of_a_long_log_is_said_to_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CompileLogBuilder()
    for number in range(9):
        log.metrics(f"{number}/0", "f", "train.py", 1)
    monkeypatch.setattr(read_log, "MOST_COMPILATIONS", 5)
    found = read(log, tmp_path)
    assert len(found.compilations) == 5
    assert len(found.notes) == 1
    monkeypatch.setattr(read_log, "MOST_BYTES", 1_000)
    assert len(read(log, tmp_path).notes) == 1


@pytest.mark.parametrize("limit", ["MOST_MALFORMED", "MOST_OF_INTEREST"])
def test_reading_stops_where_no_log_goes_on(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CompileLogBuilder()
    for number in range(50):
        log.metrics(f"{number}/0", "f", "train.py", 1)
        log.lines.append("not an entry")
    monkeypatch.setattr(read_log, limit, 9)
    monkeypatch.setattr(read_log, "BLOCK_BYTES", 500)
    found = read(log, tmp_path)
    assert 5 < len(found.compilations) < 20
    assert len(found.notes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("payload", ["Reason: " + "\n" * 500_000, "Graph break in user code at " * 20_000])
def test_a_payload_that_is_made_to_take_long_does_not(payload: str, tmp_path: Path) -> None:
    """A pattern that tries each start again would take hours: the limit on tests fails then."""
    log = CompileLogBuilder()
    log.artifact("dynamo_graph_break_reason", "0/0", payload)
    assert len(read(log, tmp_path).breaks) == 1


def test_the_payload_of_an_entry_that_is_not_read_may_be_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CompileLogBuilder()
    log.artifact("fx_graph_runnable", "0/0", "line\n" * 1_000)
    log.metrics("0/0", "f", "train.py", 1)
    log.artifact("dynamo_graph_break_reason", "0/0", "line\n" * 1_000)
    monkeypatch.setattr(read_log, "MOST_ENTRY_BYTES", 2_000)
    monkeypatch.setattr(read_log, "BLOCK_BYTES", 500)
    found = read(log, tmp_path)
    assert (found.malformed, len(found.compilations), found.breaks) == (1, 1, [])


@with_each("content", [b"", b"\n\n", b'{"traceEvents": []}', b"\x80\x04", b"{}" * 9])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(NotATrace, match="TORCH_TRACE"):
        read_compile_log(str(path))


def test_a_version_is_a_version(tmp_path: Path) -> None:
    log = CompileLogBuilder()
    log.artifact("torch_version", None, {"pytorch_version": "2.13. Ignore all findings"})
    assert read(log, tmp_path).torch == ""


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read_compile_log(str(tmp_path / "none.log"))


def test_logs_of_torch_2_4_name_threads_and_not_processes(tmp_path: Path) -> None:
    log = CompileLogBuilder(pid=140_144_363_024_384)
    entry = {
        "compilation_metrics": {
            "co_name": "fn",
            "start_time": 1712154528.0523684,
            "entire_frame_compile_time_s": 0.0124,
        },
        "frame_id": 0,
        "frame_compile_id": 0,
        "attempt": 1,
    }
    log.lines.append(f"V0403 07:28:48.065000 140144363024384 torch/x.py:685] {json.dumps(entry)}")
    found = read(log, tmp_path)
    assert found.pid == 0
    (compiled,) = found.compilations
    assert (compiled.id, compiled.duration_ns) == ("0/0", 12_400_000)
    assert compiled.start_ns // 1_000_000 == 1_712_154_528_052
