"""A whole file of each kind, small, as a document that `writers.py` writes: what `odd_files.py` changes."""

from __future__ import annotations

from typing import Any, Final

from tb_gpudiag.vocabulary.written import PHASES, TAGS
from tests.builder.nsys import DOMAIN, Export
from tests.builder.recording import DeviceProperties
from tests.builder.rocprof import Recorded
from tests.builder.snapshot import SnapshotBuilder
from tests.fuzz.odd_values import Single
from tests.trace.flight_recorder.dumps import entry

START_NS: Final = 1_700_000_000_000_000_000


def dump() -> Any:
    """A dump of the flight recorder of rank 0 of 2."""
    entries = [
        entry("all_reduce", 1),
        entry("_reduce_scatter_base", 2, size=64),
        entry("send 0->1", 3),
        entry("all_reduce", 4, group="1", state="started"),
        entry("recv 0<-1", 5, state="scheduled", back_end="gloo"),
        entry("broadcast", 6, state="scheduled"),
    ]
    groups = {name: {"name": name, "desc": "default_pg", "ranks": "[0, 1]"} for name in ("0", "1")}
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": groups,
        "pg_status": {"0": {"last_enqueued_collective": 6}},
        "entries": [{**one, "record_id": number} for number, one in enumerate(entries)],
    }


def snapshot() -> Any:
    """A memory snapshot of two devices, with what each kind of entry has."""
    made = SnapshotBuilder(2)
    stack = ("/job/train.py(7): main", "/job/model.py(9): forward")
    segment = made.segment(1 << 21, at=1, stack=stack)
    kept = made.allocate(5_000, at=2, stack=stack)
    freed = made.allocate(512, at=3, stack=stack)
    made.free(freed, at=4, completed=False)
    made.step(1, at=1, us=9)
    other = made.segment(1 << 20, at=5, device=1, expandable=True)
    made.give_back(other, at=6)
    made.out_of_memory(1 << 30, at=7, device_free=1 << 20, stack=stack)
    made.free(kept, at=8)
    made.segment(1 << 20, at=9, address=segment + (1 << 22))
    return made.document()


def segments() -> Any:
    """What torch.cuda.memory_snapshot() returns."""
    made = SnapshotBuilder()
    made.segment(1 << 21)
    made.allocate(700, at=1, stack=("a.py(1): f",))
    return made.document("segments only")


def rocprof() -> Any:
    """A document of rocprofv3."""
    made = Recorded().gpu(DeviceProperties("AMD Instinct MI300X", multiprocessors=304))
    made.marker("ProfilerStep#1", 50, 2_000).marker("aten::mm, seq = 5, op_id = 7", 60, 1_000)
    made.call("hipLaunchKernel", 100, 200, 5).kernel("gemm", 300, 900, 5, grid=(1_024, 2, 1))
    made.copy("HtoD", 1_000, 1_100, 6, bytes=64).collective("ncclAllReduce", 1_200, 1_300, 7)
    made.marker("loose", 10, 20, operation="roctxRangeStartA")
    return made.document()


def rocprof_of_kernels() -> Any:
    """The same with a kernel and its call alone."""
    return Recorded().gpu(DeviceProperties("MI300X")).call("hip", 1, 2, 5).kernel("gemm", 3, 9, 5).document()


def export() -> Any:
    """The tables of an export of Nsight Systems."""
    made = Export().device(DeviceProperties("NVIDIA H100", multiprocessors=132))
    made.call("cudaLaunchKernel_v7000", 100, 200, 5, callchainId=1)
    made.kernel("gemm", 300, 900, 5).copy(1, 1_000, 1_100, 6)
    made.gpu("MEMSET", 1_200, 1_300, 7, bytes=64, memKind=2)
    made.gpu("GRAPH_TRACE", 1_400, 1_500, 8, graphId=3)
    made.gpu("SYNCHRONIZATION", 1_500, 1_600, 9, syncType=2, eventId=4, eventSyncId=1)
    recorded = {"globalPid": made.process(), "eventId": 4, "streamId": 7, "correlationId": 5}
    made.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **recorded)
    made.range("aten::mm, seq = 5, op_id = 7", 90, 250).range("ProfilerStep#1", 50, 2_000)
    made.range("data", 0, None, eventType=DOMAIN, domainId=2).range("load", 10, 40, domainId=2)
    made.add("OSRT_API", start=1_700, end=9_800, globalTid=made.tid(1), nameId=made.string("poll"))
    for at, inside in ((20_000, 0), (40_000, 1)):
        made.add("SCHED_EVENTS", start=at, isSchedIn=inside, globalTid=made.tid(1), threadState=1)
    made.add("PROFILER_OVERHEAD", start=1, end=9, globalTid=made.tid(1), nameId=made.string("flush"))
    made.add("ThreadNames", nameId=made.string("main"), priority=20, globalTid=made.tid(1))
    made.add("CUDA_CALLCHAINS", id=1, symbol=made.string("py::step:/job/train.py"), stackDepth=0)
    made.add("SAMPLING_CALLCHAINS", id=2, symbol=made.string("py::load:/job/data.py"), stackDepth=0)
    made.add("COMPOSITE_EVENTS", id=2, start=95, globalTid=made.tid(1))
    memory = {"deviceId": 0, "address": 4_096, "bytes": 512, "memKind": 2, "globalPid": made.process()}
    made.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=5, memoryOperationType=0, **memory)
    made.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=8, memoryOperationType=1, **memory)
    made.add("TARGET_INFO_GPU_METRICS", typeId=1, metricId=2, metricName="SMs Active [Throughput %]")
    made.add("GPU_METRICS", timestamp=400, typeId=1, metricId=2, value=50)
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START_NS)
    made.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=made.pid)
    made.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2024.6.2.225")
    made.add("META_DATA_CAPTURE", name="1:ENVIRONMENT_VARIABLE", value='RANK="1"')
    made.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="worker-7")
    made.add("DIAGNOSTIC_EVENT", severity=2, text="Not all events were recorded.")
    strings = [{"id": number, "value": text} for text, number in made._strings.items()]
    return {**made.tables, "StringIds": strings}


def export_of_kernels() -> Any:
    """The same with a kernel alone."""
    made = Export().kernel("gemm", 300, 900, 5)
    return {**made.tables, "StringIds": [{"id": 1, "value": "gemm"}]}


def packets() -> Any:
    """The packets of a `.pftrace`: fields by the numbers of Perfetto's messages."""
    tables = {
        1: ("cpu_op", "cuda_runtime"),
        2: ("aten::mm", "cudaLaunchKernel", "gemm", "Stream Wait Event"),
        24: ("Kernel", "Memcpy", "Annotation"),
        1001: ("registers_per_thread", "shared_mem_dynamic"),
    }
    interned = [
        *([table, [[1, iid], [2, n]]] for table, names in tables.items() for iid, n in enumerate(names, 1)),
        [24, [[1, 100], [2, "[07] stream 7"]]],
        [47, [[1, 1], [3, 0], [2, [[1, [[1, 0], [2, "SM Clock (MHz)"]]]]]]],
    ]
    thread = [60, [[1, 1], [4, [[1, 4_242], [2, 4_243], [5, "main"]]]]]
    return [
        [1, [thread]],
        [1, [[12, interned]]],
        *([1, packet] for packet in _slices()),
        [1, [[8, START_NS + 400], [53, _stage(1, 3)]]],
        [1, [[8, START_NS + 900], [53, _stage(2, 0)]]],
        [1, [[8, START_NS + 500], [52, [[4, 1], [2, [[1, 0], [3, 1_410.0]]]]]]],
    ]


def _slices() -> list[Any]:
    arguments = [[10, "External id"], [4, 5]], [[10, "Input Dims"], [12, [[12, [[4, 4], [4, 8]]]]]]
    sync = [[10, "cuda_sync_kind"], [6, "Stream Wait Event"]], [[10, "wait_on_stream"], [4, 7]]
    said = ((1, 1, arguments), (2, 2, ([[10, "correlation"], [4, 77]],)), (4, None, sync))
    found = []
    for at, (name, category, noted) in enumerate(said):
        event = [[9, 1], [10, name], [11, 1], *([4, one] for one in noted)]
        event += [[3, category]] if category else []
        found.append([[8, START_NS + at * 10], [11, event]])
        found.append([[8, START_NS + 100 + at * 10], [11, [[9, 2], [11, 1]]]])
    return found


def _stage(kind: int, name: int) -> Any:
    launch = [[1, [[1, 3], [2, 2], [3, 1]]], [2, [[1, 128]]], [3, [[1, 1], [4, 40]]]]
    extra = ([[1, "correlation"], [2, "77"]], [[1, "stream id"], [2, "7"]], [[1, "bytes"], [2, "4096"]])
    return [[2, 300], [11, 0], [13, 100], [14, kind], [20, name], [21, launch], *([6, one] for one in extra)]


def parts(document: Any) -> list[tuple[Any, Any]]:
    """Return what a document may lack: each a container and the key or slice of what is in it, in order."""
    match document:
        case {"rocprofiler-sdk-tool": [{"buffer_records": records}]}:
            return [(records, kind) for kind in records]
        case {"StringIds": _}:
            return [(document, table) for table in document if table != "StringIds"]
        case [[1, [[60, _]]], *_]:  # the beginning of a slice and its end, a stage, a stage, a counter
            return [
                (document, slice(at, at + size))
                for at, size in ((2, 2), (4, 2), (6, 2), (8, 1), (9, 1), (10, 1))
            ]
        case {"device_traces": [*traces], "segments": segments}:
            return [(each, slice(at, at + 1)) for each in (segments, *traces) for at in range(len(each))]
    return []


def clock_lines() -> Any:
    """The records of an event file of a step clock."""
    wall_s = START_NS / 1e9
    lines = [
        [[1, wall_s + step], [2, step], [5, [[1, [[1, tag], [2, Single(3.5)]]] for tag in TAGS]]]
        for step in range(2)
    ]
    return [[[1, wall_s], [3, "brain.Event:2"]], *lines]


def clock_now() -> Any:
    """What a rank says of its last steps."""
    times = {"step_ms": 10.0, "phases_ms": [1.0] * len(PHASES), "core_ms": 0.5}
    drift = {"drifts": 1, "since": 90, "gradual": False, "longer_ms": [2.0] * (len(PHASES) + 2)}
    return {"rank": 0, "step": 100, "blocks": 24, **times, **drift}


def clock_recordings() -> Any:
    """The recordings that a rank's clock made, and, in another file, what it was told to record last."""
    made = {"file": "host_1.1.pt.trace.json.gz", "why": "it got slower", "step": 90, "time_s": START_NS / 1e9}
    return {"recordings": [made, made | {"step": 95}], "why": "step 90", "time_s": START_NS / 1e9, "step": 91}


def compile_log() -> Any:
    """Entries of a log of torch.compile: kind, id, what it says, its payload."""
    reason = "3/0: L['x'] == 2.0  # return x  # train.py:7 in step"
    stack = 'Graph break in user code at /job/train.py:9\nReason: print\n  File "/job/train.py", line 9, in f'
    figures = {
        "co_name": "step",
        "co_filename": "/job/train.py",
        "co_firstlineno": 7,
        "start_time_us": START_NS // 1_000,
        "duration_us": 500,
        "cudagraph_skip_reason": "skipping cudagraphs due to cpu device. Found from : \n",
        "inductor_fx_local_cache_hit_count": 1,
        "fail_type": "Unsupported",
        "fail_reason": "no",
    }
    artifact = {"encoding": "json"}
    return [
        ["artifact", "3/1", {"name": "recompile_reasons", **artifact}, [reason]],
        ["dynamo_cpp_guards_str", "3/1", {}, "+- EQUALS_MATCH: L['x'] == 3.0  # return x"],
        ["artifact", "3/1", {"name": "dynamo_graph_break_reason", **artifact}, stack],
        ["artifact", "3/1", {"name": "fx_graph_cache_hit", **artifact}, {}],
        ["compilation_metrics", "3/1", figures, None],
        ["compilation_metrics", "6/0", {**figures, "is_forward": False, "co_name": ""}, None],
    ]
