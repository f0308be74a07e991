"""Tables of an export become columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category, MemoryAction
from tests.builder.nsys import DOMAIN, SESSION_START_NS, START_END, Export
from tests.builder.recording import DeviceProperties


def read(export: Export, folder: Path) -> Trace:
    return read_trace(str(export.write(folder / "report.sqlite")))


def names(trace: Trace, *categories: Category) -> list[str]:
    events = trace.events
    return [events.names[events.name[i]] for i in events.where(*categories).tolist()]


def one_kernel() -> Export:
    return Export().call("cudaLaunchKernel_v7000", 100, 200, 5).kernel("gemm", 300, 900, 5)


def test_a_kernel_and_its_launch(tmp_path: Path) -> None:
    export = one_kernel().device(DeviceProperties("A100", multiprocessors=10))
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"] = []
    export.kernel("gemm", 300, 900, 5, gridX=20, blockX=96, staticSharedMemory=7, dynamicSharedMemory=1)
    trace = read(export, tmp_path)
    events = trace.events
    (kernel,) = events.where(Category.KERNEL)
    (call,) = events.where(Category.RUNTIME)
    assert names(trace, Category.RUNTIME, Category.KERNEL) == ["cudaLaunchKernel", "gemm"]
    assert events.correlation[kernel] == events.correlation[call] > 0
    assert (events.start_ns[kernel], events.duration_ns[kernel]) == (200, 600)
    assert (events.device[kernel], events.stream[kernel]) == (0, 7)
    assert events.blocks_per_sm[kernel] == 2.0
    assert (events.warps_per_block[kernel], events.registers[kernel], events.shared_bytes[kernel]) == (
        3,
        32,
        8,
    )
    assert events.input_settings[events.settings[kernel]] == "[20, 1, 1] × [96, 1, 1]"
    assert trace.start_ns == 100
    assert trace.metadata.base_time_ns == SESSION_START_NS
    assert trace.metadata.device_properties[0]["name"] == "A100"


def test_without_multiprocessors_the_grid_is_known(tmp_path: Path) -> None:
    events = read(one_kernel().kernel("big", 900, 950, 6, gridX=40, gridY=2), tmp_path).events
    kernel = events.where(Category.KERNEL)[1]
    assert events.blocks[kernel] == 80
    assert np.isnan(events.blocks_per_sm[kernel])


def test_copies_memsets_and_graphs_have_the_names_of_kineto(tmp_path: Path) -> None:
    export = one_kernel().copy(1, 1000, 1100, bytes=64, srcKind=1).copy(10, 1100, 1200, srcKind=2)
    export.copy(2, 1200, 1300, srcKind=2, dstKind=0).copy(11, 1300, 1310)
    export.gpu("MEMSET", 1400, 1500, bytes=32, memKind=2)
    export.gpu("GRAPH_TRACE", 1600, 1700, graphId=4, graphExecId=5)
    trace = read(export, tmp_path)
    assert names(trace, Category.MEMCPY) == [
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy HtoD (Managed)",
    ]
    assert names(trace, Category.MEMSET) == ["Memset (Device)"]
    assert names(trace, Category.KERNEL) == ["gemm", "CUDA graph 4"]
    events = trace.events
    assert events.bytes[events.where(Category.MEMCPY)].tolist() == [64, 1, 1, 1]
    assert events.bytes[events.where(Category.MEMSET)].tolist() == [32]


def test_waits_have_the_names_of_kineto(tmp_path: Path) -> None:
    export = one_kernel()
    for kind in range(5):
        export.gpu(
            "SYNCHRONIZATION", 1000 + kind, 1010 + kind, 7, syncType=kind, eventId=3, streamId=2**32 - 1
        )
    found = names(read(export, tmp_path), Category.CUDA_SYNC)
    assert found == ["Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"]


def test_ranges_of_emit_nvtx_are_operators(tmp_path: Path) -> None:
    export = one_kernel()
    export.range("aten::mul, seq = 12, op_id = 5, sizes = [[2, 3], []], input_op_ids = [(4,0)]", 10, 90)
    export.range("aten::detach, op_id = 6", 20, 30)
    export.range("aten::t", 40, 50)
    export.range("MulBackward0, seq = 12, op_id = 9", 60, 70)
    export.range("autograd::engine::evaluate_function: MulBackward0", 55, 75)
    export.range("my part, number 3", 80, 85)
    trace = read(export, tmp_path)
    events = trace.events
    assert names(trace, Category.CPU_OP) == [
        "aten::mul",
        "aten::detach",
        "aten::t",
        "autograd::engine::evaluate_function: MulBackward0",
        "MulBackward0",
    ]
    rows = events.where(Category.CPU_OP)
    assert events.sequence[rows].tolist() == [12, NONE, NONE, NONE, 12]
    assert events.input_shapes[events.shapes[rows[0]]] == "[[2, 3], []]"
    assert trace.metadata.record_shapes
    assert names(trace, Category.USER_ANNOTATION) == ["my part, number 3"]


def test_registered_strings_and_domains(tmp_path: Path) -> None:
    export = one_kernel()
    export.range("NCCL", 0, 0, eventType=DOMAIN, domainId=1)
    export.range("ignored", 10, 20, textId=export.string("allreduce"), domainId=1)
    export.range("", 30, 40, textId=export.string("mine"))
    assert names(read(export, tmp_path), Category.USER_ANNOTATION) == ["NCCL: allreduce", "mine"]


def test_ranges_that_repeat_are_steps(tmp_path: Path) -> None:
    export = one_kernel()
    for i in range(3):
        export.range("iteration", 1000 * i, 1000 * i + 900)
        export.range("forward", 1000 * i, 1000 * i + 300)
        export.range("step inside", 1000 * i, 1000 * i + 20)
    facts = Facts(read(export, tmp_path))
    assert facts.recorded_steps.names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert facts.recorded_steps.start_ns.tolist() == [0, 1000, 2000]
    assert any('"iteration"' in note for note in facts.trace.notes)


def test_steps_keep_their_numbers(tmp_path: Path) -> None:
    export = one_kernel().range("Step 7", 0, 10).range("step_8", 10, 20).range("step", 12, 15, 2)
    assert Facts(read(export, tmp_path)).recorded_steps.names == ["ProfilerStep#7", "ProfilerStep#8"]


def test_steps_of_the_profiler_are_steps_already(tmp_path: Path) -> None:
    export = one_kernel().range("ProfilerStep#3", 0, 10).range("ProfilerStep#4", 10, 20).range("step", 0, 5)
    export.range("step", 10, 15)
    assert Facts(read(export, tmp_path)).recorded_steps.names == ["ProfilerStep#3", "ProfilerStep#4"]


def test_one_range_is_not_a_step(tmp_path: Path) -> None:
    trace = read(one_kernel().range("step", 0, 10), tmp_path)
    assert not len(Facts(trace).recorded_steps)


def test_ranges_that_need_not_be_nested_may_be_steps(tmp_path: Path) -> None:
    export = one_kernel()
    for i in range(2):
        export.range(f"step {i}", 1000 * i, 1000 * i + 500, eventType=START_END)
    trace = read(export, tmp_path)
    assert len(Facts(trace).recorded_steps) == 2
    assert names(trace, Category.OTHER) == ["step 0", "step 1"]


def test_system_calls_count_outside_of_calls_of_cuda(tmp_path: Path) -> None:
    export = one_kernel()

    def system_call(name: str, start: int, end: int, thread: int = 1) -> None:
        more = {"globalTid": export.tid(thread), "nameId": export.string(name), "eventClass": 27}
        export.add("OSRT_API", start=start, end=end, **more)

    export.call("cudaDeviceSynchronize_v3020", 10_000, 90_000)
    system_call("poll", 20_000, 30_000)
    system_call("sem_wait", 100_000, 150_000)
    system_call("read", 160_000, 160_100)  # too short to be a wait
    system_call("poll", 100_000, 150_000, thread=99)  # a thread that does nothing else
    assert names(read(export, tmp_path), Category.USER_ANNOTATION) == ["sem_wait (OS)"]


def test_system_calls_inside_of_operators_are_how_they_wait(tmp_path: Path) -> None:
    export = one_kernel().range("aten::item, op_id = 3", 10_000, 90_000).range("mine", 10_000, 500_000)
    for start in (20_000, 200_000):
        more = {"globalTid": export.tid(1), "nameId": export.string("poll")}
        export.add("OSRT_API", start=start, end=start + 50_000, **more)
    trace = read(export, tmp_path)
    found = [i for i in trace.events.where(Category.USER_ANNOTATION) if trace.events.start_ns[i] > 100_000]
    assert (trace.events.start_ns[found] + trace.start_ns).tolist() == [200_000]


def test_times_off_the_cpu(tmp_path: Path) -> None:
    export = one_kernel().call("cudaDeviceSynchronize_v3020", 100_000, 200_000)
    for start, end, state, thread in (
        (20_000, 50_000, 1, 1),
        (60_000, 61_000, 1, 1),  # too short
        (120_000, 180_000, 2, 1),  # how the call waits
        (300_000, 400_000, 3, 1),
        (500_000, 600_000, 0, 1),
        (20_000, 50_000, 1, 99),  # a thread that does nothing else
    ):
        export.add("SCHED_EVENTS", start=start, isSchedIn=0, threadState=state, globalTid=export.tid(thread))
        export.add("SCHED_EVENTS", start=end, isSchedIn=1, threadState=None, globalTid=export.tid(thread))
    export.add("SCHED_EVENTS", start=700_000, isSchedIn=0, threadState=2, globalTid=export.tid(1))
    trace = read(export, tmp_path)
    assert names(trace, Category.USER_ANNOTATION) == [
        "preempted (OS)",
        "page fault or disk (OS)",
        "off the CPU (OS)",
    ]
    rows = trace.events.where(Category.USER_ANNOTATION)
    assert trace.events.duration_ns[rows].tolist() == [30_000, 100_000, 100_000]


def test_memory_of_the_driver(tmp_path: Path) -> None:
    export = one_kernel()
    for time, change, kind, address in (
        (10, 4096, 2, 1),
        (20, 512, 1, 2),
        (30, 1024, 2, 3),
        (40, -4096, 2, 1),
    ):
        export.add(
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
            start=time,
            globalPid=export.process(),
            deviceId=0,
            address=address,
            bytes=abs(change),
            memKind=kind,
            memoryOperationType=int(change < 0),
        )
    memory = read(export, tmp_path).memory
    assert memory.bytes.tolist() == [4096, 1024, -4096]
    assert memory.reserved.tolist() == [4096, 5120, 1024]
    assert memory.action.tolist() == [MemoryAction.ALLOCATE, MemoryAction.ALLOCATE, MemoryAction.FREE]


def test_several_processes_do_not_share_correlations(tmp_path: Path) -> None:
    export = one_kernel()
    other = {"globalTid": export.tid(8, pid=9)}
    export.call("cudaLaunchKernel_v7000", 400, 500, 5, **other)
    export.kernel("of 9", 1000, 1100, 5, globalPid=export.process(9))
    for gpu, pid in ((0, export.pid), (1, 9)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    facts = Facts(read(export, tmp_path))
    events = facts.trace.events
    assert events.start_ns[facts.work.launch].tolist() == [0, 300]
    assert events.device[facts.work.event].tolist() == [0, 1]


def test_rank_host_threads_and_credentials(tmp_path: Path) -> None:
    export = one_kernel()
    for text in ('RANK="3"', 'WORLD_SIZE="8"', 'HF_TOKEN="hf_abcdefghijklmnopqrstuvwxyz01234567"'):
        export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=text)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node7")
    export.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="A=b;MY_API_KEY=k3j4h5k3j4h5k3j4h5")
    export.string("HOME=/root\0JUPYTER_TOKEN=0f9e8d7c6b5a49382716050f9e8d7c6b5a493827\0")
    export.add("ThreadNames", nameId=export.string("trainer"), globalTid=export.tid(1))
    trace = read(export, tmp_path)
    assert trace.metadata.distributed == {"rank": 3, "world_size": 8}
    assert trace.metadata.host_name == "node7"
    assert [thread.name for thread in trace.events.threads if thread.tid == "1"] == ["trainer"]
    assert {credential.name for credential in trace.credentials} == {
        "HF_TOKEN",
        "MY_API_KEY",
        "JUPYTER_TOKEN",
    }


def test_columns_that_old_versions_lack(tmp_path: Path) -> None:
    export = one_kernel()
    for table in export.tables:
        left_out = {
            "globalPid",
            "registersPerThread",
            "gridX",
            "demangledName",
            "eventClass",
            "staticSharedMemory",
        }
        export.tables[table] = [
            {key: value for key, value in row.items() if key not in left_out} for row in export.tables[table]
        ]
    facts = Facts(read(export, tmp_path))
    assert names(facts.trace, Category.KERNEL) == ["gemm"]
    assert facts.work.launch.tolist() != [NONE]


def test_a_packed_export(tmp_path: Path) -> None:
    path = one_kernel().write(tmp_path / "report.sqlite")
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_trace(str(packed)).events) == 2


def test_a_stream_waits_for_an_event_of_another(tmp_path: Path) -> None:
    """The wait is for the last record before it; newer versions say for which one."""
    for newer in (False, True):
        (tmp_path / str(newer)).mkdir()
        export = one_kernel()
        for correlation, sync in ((10, 1), (12, 2), (16, 3)):
            export.call("cudaEventRecord_v3020", 100 * correlation, 100 * correlation + 5, correlation)
            more = {"eventSyncId": sync} if newer else {}
            export.gpu("CUDA_EVENT", 0, 0, correlation, streamId=20, eventId=3, **more)
        export.call("cudaStreamWaitEvent_v3020", 1400, 1405, 14)
        more = {"eventSyncId": 1} if newer else {}
        export.gpu("SYNCHRONIZATION", 1400, 1401, 14, streamId=7, syncType=2, eventId=3, **more)
        trace = read(export, tmp_path / str(newer))
        waits = Facts(trace).stream_waits
        assert waits.recorded
        assert (waits.made_ns + trace.start_ns).tolist() == [1400]
        assert (waits.record_ns + trace.start_ns).tolist() == [1000 if newer else 1200]
        assert trace.events.forward_thread[waits.event].tolist() == [20]
        assert trace.events.stream[waits.event].tolist() == [7]


def test_a_wait_for_the_device_whose_kind_is_not_written(tmp_path: Path) -> None:
    nothing = 2**32 - 1
    export = one_kernel().gpu(
        "SYNCHRONIZATION", 1400, 1500, 14, streamId=nothing, syncType=0, eventId=nothing
    )
    assert names(read(export, tmp_path), Category.CUDA_SYNC) == ["Context Sync"]


def chain(export: Export, table: str, number: int, *symbols: str) -> None:
    """Add a call chain, innermost frame first."""
    for depth, symbol in enumerate(symbols):
        export.add(table, id=number, symbol=export.string(symbol), module=0, stackDepth=depth)


def stack_of(trace: Trace, category: Category) -> list[str]:
    events = trace.events
    codes = events.call_stack[events.where(category)].tolist()
    return [events.call_stacks[code] if code != NONE else "" for code in codes]


def test_python_stacks_of_samples_and_call_chains(tmp_path: Path) -> None:
    export = Export()
    for number, time, symbols in (
        (1, 150, ("cuLaunchKernel", "py::forward:/me/model.py", "_PyEval", "py::main:/me/train.py")),
        (2, 160, ("py::other:/me/model.py",)),
        (3, 450, ("write", "py::main:/me/train.py")),
        (4, 950, ("nothing of Python",)),
    ):
        export.add("COMPOSITE_EVENTS", id=number, start=time, globalTid=export.tid(1))
        chain(export, "SAMPLING_CALLCHAINS", number, *symbols)
    chain(export, "CUDA_CALLCHAINS", 9, "py::save:/me/train.py")
    export.call("cudaLaunchKernel_v7000", 100, 200, 1).call("cudaLaunchKernel_v7000", 300, 400, 2)
    export.call("cudaStreamSynchronize_v3020", 400, 500, 3).call(
        "cudaFree_v3020", 900, 990, 4, 1, callchainId=9
    )
    export.call("cudaMalloc_v3020", 140, 170, 5, 2)
    export.range("aten::mm, op_id = 1", 90, 250).range("step", 0, 1000)
    trace = read(export.kernel("gemm", 300, 900, 1), tmp_path)
    assert stack_of(trace, Category.RUNTIME) == [
        "/me/model.py(0): forward;/me/train.py(0): main",
        "",
        "",
        "/me/train.py(0): main",
        "/me/train.py(0): save",
    ]
    assert stack_of(trace, Category.CPU_OP) == ["/me/model.py(0): forward;/me/train.py(0): main"]
    assert stack_of(trace, Category.USER_ANNOTATION) == [""]
    assert Facts(trace).recorded.stacks


def test_gpu_metrics_are_counters(tmp_path: Path) -> None:
    export = one_kernel()
    metrics = {1: "GPC Clock Frequency [MHz]", 2: "SMs Active [Throughput %]", 3: "Vertex Warps [%]"}
    gpu = 1
    for metric, name in metrics.items():
        export.add("TARGET_INFO_GPU_METRICS", typeId=(7 << 8) | gpu, metricId=metric, metricName=name)
        for time in (600, 500):
            export.add(
                "GPU_METRICS", timestamp=time, typeId=(7 << 8) | gpu, metricId=metric, value=metric * time
            )
    export.add("GPU_METRICS", timestamp=500, typeId=9, metricId=1, value=1)  # of a GPU that is not listed
    export.add("GPU_METRICS", timestamp=None, typeId=(7 << 8) | gpu, metricId=1, value=1)
    clock, active = read(export, tmp_path).counters
    assert (clock.name, clock.unit, clock.device) == ("GPC Clock Frequency [MHz]", "MHz", gpu)
    assert (clock.time_ns.tolist(), clock.value.tolist()) == ([400, 500], [500, 600])
    assert (active.name, active.unit, active.value.tolist()) == (
        "SMs Active [Throughput %]",
        "%",
        [1000, 1200],
    )
