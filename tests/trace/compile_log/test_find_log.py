from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.errors import TraceError
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.trace.compile_log.log import CompileLog
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import EPOCH_NS, CompileLogBuilder, TraceBuilder


def compiled(folder: Path) -> Path:
    """Write a trace of process 4242 with compiled code."""
    trace = TraceBuilder()
    trace.thread().op("Torch-Compiled Region: 0/0", at=10, us=50)
    return trace.write(folder)


def log(pid: int = 4242, *, starts_ns: int = EPOCH_NS - 10**9, function: str = "f") -> CompileLogBuilder:
    made = CompileLogBuilder(pid)
    made.metrics("0/0", function, "train.py", 1, start_ns=starts_ns)
    return made


def found(trace: Path) -> CompileLog | None:
    return read_facts(only_trace(str(trace))).trace.compile_log


def test_the_log_beside_the_trace_is_found_by_its_process(tmp_path: Path) -> None:
    trace = compiled(tmp_path)
    assert found(trace) is None
    log(77).write(tmp_path, "dedicated_log_torch_trace_rank_1_a.log")
    log().write(tmp_path, "dedicated_log_torch_trace_rank_0_b.log")
    log().write(tmp_path, "other.log")
    read = found(trace)
    assert read is not None
    assert read.name == "dedicated_log_torch_trace_rank_0_b.log"


def test_a_later_process_with_the_same_id_wrote_another_log(tmp_path: Path) -> None:
    """Processes in containers start with the same ids."""
    trace = compiled(tmp_path)
    own = log(function="own").write(tmp_path, "dedicated_log_torch_trace_a.log")
    later = log(starts_ns=EPOCH_NS + 10**12, function="later").write(
        tmp_path, "dedicated_log_torch_trace_b.log"
    )
    os.utime(own, ns=(1, 1))
    os.utime(later, ns=(2, 2))
    read = found(trace)
    assert read is not None
    assert [c.function for c in read.compilations] == ["own"]


@pytest.mark.parametrize("name", ["rank_{}_a", "begun_before_torch_knew_the_rank_{}"])
def test_ranks_on_two_machines_may_have_one_process_id(name: str, tmp_path: Path) -> None:
    trace = TraceBuilder(rank=1, world_size=2)
    trace.thread().op("Torch-Compiled Region: 0/0", at=10, us=50)
    path = trace.write(tmp_path)
    for rank in (0, 1, 2):
        made = log(function=f"of rank {rank}")
        made.artifact("something", "0/0", "", rank=rank)
        made.artifact("dynamo_graph_break_reason", "0/0", "", rank=rank)
        made.write(tmp_path, f"dedicated_log_torch_trace_{name.format(rank)}.log")
    read = found(path)
    assert read is not None
    assert (read.rank, read.compilations[0].function) == (1, "of rank 1")


def test_a_log_beside_a_trace_without_compiled_code_is_not_opened(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=10, us=50)
    log().write(tmp_path)
    assert found(trace.write(tmp_path)) is None


def test_a_log_that_does_not_say_its_process_is_taken_if_it_is_the_only_one(tmp_path: Path) -> None:
    trace = compiled(tmp_path)
    log(140_144_363_024_384).write(tmp_path, "dedicated_log_torch_trace_a.log")
    assert found(trace) is not None
    log(140_144_363_024_384).write(tmp_path, "dedicated_log_torch_trace_b.log")
    assert found(trace) is None


def test_a_damaged_log_beside_the_trace_costs_nothing(tmp_path: Path) -> None:
    trace = compiled(tmp_path)
    (tmp_path / "dedicated_log_torch_trace_a.log").write_bytes(b"V1126 10:02:47.287000 4242 \xff\n" * 9)
    (tmp_path / "dedicated_log_torch_trace_b.log").mkdir()
    assert found(trace) is None


def test_a_link_out_of_the_log_directory_is_not_followed(tmp_path: Path) -> None:
    outside = log().write(tmp_path / "elsewhere")
    compiled(tmp_path / "log")
    (tmp_path / "log" / outside.name).symlink_to(outside)
    (file,) = find_traces(str(tmp_path / "log")).files
    assert read_facts(file).trace.compile_log is None


def test_a_named_log_is_read_from_anywhere(tmp_path: Path) -> None:
    file = only_trace(str(compiled(tmp_path / "log")))
    path = log(77).write(tmp_path / "elsewhere")
    read = read_facts(replace(file, torch_trace=str(path))).trace.compile_log
    assert read is not None
    other = read_facts(replace(file, torch_trace=str(path.parent))).trace
    assert other.compile_log is None
    assert [note for note in other.notes if "of the process that recorded this trace" in note]
    log().write(path.parent, "dedicated_log_torch_trace_b.log")
    read = read_facts(replace(file, torch_trace=str(path.parent))).trace.compile_log
    assert read is not None
    assert read.pid == 4242
    with pytest.raises(TraceError):
        read_facts(replace(file, torch_trace=str(tmp_path / "none")))
