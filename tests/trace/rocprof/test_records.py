"""Records of rocprofv3 become columns, and files that are not whole a clear error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.facts.core.device_properties import device_properties
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder.recording import DeviceProperties
from tests.builder.rocprof import Recorded
from tests.with_each import with_each


def read(made: Recorded, folder: Path) -> Trace:
    return read_trace(str(made.write(folder / "results.json")))


def names(trace: Trace, *categories: Category) -> list[str]:
    events = trace.events
    return [events.names[events.name[i]] for i in events.where(*categories).tolist()]


def one_kernel() -> Recorded:
    made = Recorded().gpu(DeviceProperties("AMD Instinct MI300X", multiprocessors=304))
    return made.call("hipLaunchKernel", 100, 200, 5).kernel("gemm", 300, 900, 5, grid=(1024, 2, 1))


def test_a_kernel_and_its_launch(tmp_path: Path) -> None:
    trace = read(one_kernel(), tmp_path)
    events = trace.events
    (kernel,), (call,) = events.where(Category.KERNEL), events.where(Category.RUNTIME)
    assert names(trace, Category.RUNTIME, Category.KERNEL) == ["hipLaunchKernel", "gemm"]
    assert events.correlation[kernel] == events.correlation[call] == 5
    assert (events.start_ns[kernel], events.duration_ns[kernel]) == (200, 600)
    assert (events.device[kernel], events.stream[kernel]) == (0, 7)
    assert events.blocks[kernel] == 4 * 2
    assert np.isnan(events.blocks_per_sm[kernel])
    assert events.threads[events.thread[call]].pid == "4242"
    assert (trace.metadata.recorder, trace.metadata.host_name) == ("rocprof", "worker-7")
    properties = device_properties(trace.metadata, 0)
    assert (properties.architecture, properties.multiprocessors, properties.threads) == ("gfx942", 304, 2048)


def test_copies_say_their_direction_size_and_gpu(tmp_path: Path) -> None:
    made = one_kernel().gpu(DeviceProperties("AMD Instinct MI300X"))
    made.copy("HtoD", 1000, 1100, 6, gpu=1, bytes=64).copy("DtoH", 1200, 1300, bytes=-1)
    trace = read(made, tmp_path)
    events = trace.events
    copies = events.where(Category.MEMCPY)
    assert names(trace, Category.MEMCPY) == ["Memcpy HtoD (Host -> Device)", "Memcpy DtoH (Device -> Host)"]
    assert events.device[copies].tolist() == [1, 0]
    assert events.bytes[copies].tolist() == [64, NONE]


def test_without_streams_a_queue_is_one(tmp_path: Path) -> None:
    made = one_kernel().kernel("gemm", 1000, 1100, 6, stream=9)
    for record in made.records["kernel_dispatch"]:
        del record["stream_id"]
    events = read(made, tmp_path).events
    assert events.stream[events.where(Category.KERNEL)].tolist() == [17, 19]


def test_ranges_are_operators_annotations_and_steps(tmp_path: Path) -> None:
    made = one_kernel().collective("ncclAllReduce", 95, 99, 8)
    made.marker("aten::mm, seq = 3, op_id = 9, sizes = [[2, 3]]", 90, 250)
    made.marker("epoch", 10, 900, operation="roctxProcessRangeA")
    for i in range(3):
        made.marker("step", 50 + 300 * i, 340 + 300 * i)
    trace = read(made, tmp_path)
    events = trace.events
    (operator,) = events.where(Category.CPU_OP)
    assert events.names[events.name[operator]] == "aten::mm"
    assert events.sequence[operator] == 3
    assert "RCCL: ncclAllReduce" in names(trace, Category.USER_ANNOTATION)
    assert "epoch" not in names(trace, Category.USER_ANNOTATION)  # it may begin and end on different threads
    assert 'steps are the 3 ROCTx ranges named "step"' in trace.notes
    assert len(Facts(trace).recorded_steps) == 3


def test_kernels_alone_have_no_verdict(tmp_path: Path) -> None:
    made = Recorded().gpu(DeviceProperties("AMD Instinct MI300X"))
    for i in range(100):
        made.kernel("gemm", i * 100_000, i * 100_000 + 30_000, i + 1)
    path = made.write(tmp_path / "results.json")
    facts = Facts(read_trace(str(path)))
    assert not facts.work.linked.any()
    assert find_verdict(facts).limiter == "unknown"


def test_files_are_found_by_their_content(tmp_path: Path) -> None:
    content = one_kernel().write(tmp_path / "7_results.json").read_bytes()
    (tmp_path / "8_results.json.gz").write_bytes(gzip.compress(content))
    (tmp_path / "other.json").write_text('{"results": ["rocprofiler-sdk-tool"]}')
    found = find_traces(str(tmp_path))
    assert [file.worker for file in found.files] == ["7_results", "8_results"]
    assert all(len(read_trace(file.path).events) == 2 for file in found.files)


def test_unknown_and_missing_values(tmp_path: Path) -> None:
    made = one_kernel().kernel("other", 1000, 1100)
    document = made.document()
    process = document["rocprofiler-sdk-tool"][0]
    process["kernel_symbols"] = process["kernel_symbols"][:1]
    process["agents"] = []
    process["strings"] = {"buffer_records": []}
    del process["buffer_records"]["hip_api"][0]["thread_id"]
    del process["buffer_records"]["kernel_dispatch"][1]["start_timestamp"]
    process["buffer_records"]["kernel_dispatch"].append({})
    process["buffer_records"]["memory_copy"].append(None)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    trace = read_trace(str(path))
    assert (trace.events_read, trace.malformed_events) == (2, 2)
    assert names(trace, Category.RUNTIME, Category.KERNEL) == ["operation 0", "gemm"]


@with_each(
    "content",
    [
        b'{"rocprofiler-sdk-tool": [' + b"[" * 1_000_000,
        b'{"rocprofiler-sdk-tool": [{"x": ' + b'{"a": ' * 300_000,
        b'{"rocprofiler-sdk-tool": [{"buffer_records": {"hip_api": [{"kind": "text"}]}}]}',
        b'{"rocprofiler-sdk-tool": [{"buffer_records": {"hip_api": [{"start_timestamp": 1e400}]}}]}',
        b'{"rocprofiler-sdk-tool": [{"buffer_records": {"hip_api": [{"kind": 99999999999999999999}]}}]}',
        b'{"rocprofiler-sdk-tool": [{"buffer_records": 1}]}',
        b'{"rocprofiler-sdk-tool": []}',
        b'{"rocprofiler-sdk-tool": [{}]}',
        b'{"rocprofiler-sdk-tool": [null]}',
        b'{"rocprofiler-sdk-tool": [{"kernel_symbols": [{"kernel_id": 1, "kernel_name": "\\ud800"}]}]}',
    ],
)
def test_what_is_not_whole_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(NotATrace) as raised:
        read_trace(str(path))
    assert "rocprofv3" in str(raised.value)


@with_each("share", [0.1, 0.5, 0.99])
def test_cut_off(share: float, tmp_path: Path) -> None:
    content = one_kernel().write(tmp_path / "whole.json").read_bytes()
    path = tmp_path / "results.json"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(NotATrace, match="damaged JSON of rocprofv3"):
        read_trace(str(path))


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    content = one_kernel().write(tmp_path / "whole.json").read_bytes()
    path = tmp_path / "results.json"
    path.write_bytes(content.replace(b'"gemm"', b'"ge\xffmm"'))
    assert names(read_trace(str(path)), Category.KERNEL) == ["ge\ufffdmm"]


def test_a_newer_version_says_which_rank_it_is(tmp_path: Path) -> None:
    document = one_kernel().document()
    metadata = document["rocprofiler-sdk-tool"][0]["metadata"]
    metadata["environment"] = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "PATH": "/bin", "RANK": "text"}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    assert read_trace(str(path)).metadata.distributed == {"rank": 3, "world_size": 8}


def test_credentials_of_the_command_line_are_found(tmp_path: Path) -> None:
    document = one_kernel().document()
    process = document["rocprofiler-sdk-tool"][0]
    process["metadata"]["command"] = ["python", "train.py", "HF_TOKEN=hf_" + "a1B2" * 9]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    assert sum(read_trace(str(path)).credentials.values()) == 1
