"""Tiny recordings of any shape: 1 to 20 events whose clocks, ids, lanes and order are anything at all.

Mutations of whole recordings keep most of what makes sense in them. Here little does: times repeat or are far
apart, calls return before their work and after it, ids are shared, and every time is one of a few.
"""

from __future__ import annotations

import json
import random
from typing import Any

MOST_EVENTS = 20

# µs: at one instant, a ns apart, across thresholds, minutes and hours apart.
_OFFSETS = (0, 0.001, 0.5, 1, 5, 10, 50, 100, 1_000, 2_000, 10_000, 99_999.999, 1e6, 1e8, 8.64e10)
_LENGTHS = (0, 0, 0.001, 1, 3, 5, 10, 20, 100, 1_000, 5_000, 1e5, 1e6, 1e9, 8.64e10, -1)
_BASES = (0, 1, 1_000, 1_000_000, 1_700_000_000_000_000, 4_503_599_627_370_495.5, 9e15, -1_000)
_IDS = (0, 1, 1, 2, 2, 3, -1, 2**31 - 1, 2**32, None)
_FEW = (0, 1, 1, 7, -1, 100)

_CALLS = (
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemcpy"),
    *("cudaMemsetAsync", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
    *(
        "cudaMalloc",
        "cudaFree",
        "cudaStreamWaitEvent",
        "cudaEventRecord",
        "cudaModuleLoadData",
        "cudaGetDevice",
    ),
    *("cuLaunchKernel", "cudaStreamBeginCapture", "cudaStreamEndCapture", "hipLaunchKernel", "cudaHostAlloc"),
)
_KERNELS = (
    *(
        "k",
        "void at::native::vectorized_elementwise_kernel<4>",
        "ampere_sgemm_128x64_tn",
        "triton_poi_fused_0",
    ),
    *("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_SendRecv", "flash_fwd_kernel", ""),
)
_COPIES = (
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy DtoH (Device -> Pinned)",
    "Memcpy DtoD (Device -> Device)",
)
_OPERATORS = (
    *("aten::mm", "aten::to", "aten::copy_", "aten::item", "aten::add_", "aten::zero_", "nccl:all_reduce"),
    *("autograd::engine::evaluate_function: MmBackward0", "record_param_comms", "c10d::allreduce_"),
    *("CompiledFunction", "DataParallel.forward", "aten::_scaled_dot_product_attention", "gloo:all_reduce"),
)
_ANNOTATIONS = (
    *("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#2", "forward", "train", ""),
    *("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"),
    *("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph abc ##", "Optimizer.zero_grad#SGD.zero_grad"),
)
_FRAMES = (
    *(
        "train.py(7): step",
        "nn.Module: Linear_0",
        "nn.Module: Model_0",
        "<built-in method item of Tensor object>",
    ),
    *("torch/utils/data/dataloader.py(700): __next__", "torch/profiler/profiler.py(10): step"),
    *("torch/_dynamo/convert_frame.py(1): compile", "threading.py(300): wait", "/home/me/data.py(3): load"),
)
_NAMES = {
    "cuda_runtime": _CALLS,
    "cuda_driver": _CALLS,
    "kernel": _KERNELS,
    "gpu_memcpy": _COPIES,
    "gpu_memset": ("Memset (Device)",),
    "cpu_op": _OPERATORS,
    "user_annotation": _ANNOTATIONS,
    "python_function": _FRAMES,
    "gpu_user_annotation": _ANNOTATIONS,
    "overhead": ("Lazy Function Loading", "Command Buffer Full", "Buffer Flush"),
    "cuda_sync": ("Stream Wait Event", "Event Sync", "Context Sync"),
    "Operator": (*_OPERATORS, *_ANNOTATIONS),
    "Runtime": _CALLS,
    "Kernel": _KERNELS,
    "mtia_ccp_events": ("job",),
    "Trace": ("PyTorch Profiler (0)",),
}
_LIKELY = ("cuda_runtime", "kernel", "kernel", "cpu_op", "user_annotation", "gpu_memcpy", "python_function")
_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "gpu_user_annotation"})
_DEVICES = (
    {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "computeMajor": 9, "numSms": 132},
    {"id": 1, "name": "", "totalGlobalMem": 0, "computeMajor": 0, "numSms": 0},
)


def tiny_recording(draw: random.Random) -> bytes:
    """Return a well-formed trace."""
    clock = [draw.choice(_BASES) + draw.choice(_OFFSETS) for _ in range(draw.randint(1, 6))]
    most = draw.choice((1, 2, 3, 3, 4, 5, 8, MOST_EVENTS))
    events = [_event(draw, clock) for _ in range(draw.randint(1, most))]
    if draw.random() < 0.3:
        events.append(dict(draw.choice(events)))
    order = draw.randrange(3)
    if order == 0:
        events.sort(key=lambda event: event["ts"])
    elif order == 1:
        draw.shuffle(events)
    top: dict[str, Any] = {"schemaVersion": 1}
    if draw.random() < 0.3:
        top["deviceProperties"] = list(_DEVICES)
    if draw.random() < 0.2:
        top["baseTimeNanoseconds"] = draw.choice((0, 10**18, -1, 2**63 - 1))
    if draw.random() < 0.2:
        top["distributedInfo"] = {
            "rank": draw.choice((0, 1, -1)),
            "world_size": draw.choice((0, 1, 2)),
            "backend": "nccl",
        }
    return json.dumps(top | {"traceEvents": events}).encode()


def _event(draw: random.Random, clock: list[float]) -> dict[str, Any]:
    kind = draw.random()
    start = draw.choice(clock) + (draw.choice(_OFFSETS) if draw.random() < 0.5 else 0)
    lane = {"pid": draw.choice(_FEW), "tid": draw.choice(_FEW)}
    if kind < 0.08:
        return {"ph": "i", "name": "[memory]", "ts": start, **lane, "args": _memory(draw)}
    if kind < 0.12:
        phase = draw.choice("BEsfCM")
        name = draw.choice(("ProfilerStep#1", "ac2g", "thread_name", "GPU clock"))
        return {
            "ph": phase,
            "name": name,
            "ts": start,
            "id": draw.choice(_IDS),
            "cat": "ac2g",
            **lane,
            "args": {},
        }
    category = draw.choice(_LIKELY) if draw.random() < 0.8 else draw.choice(tuple(_NAMES))
    named = category if draw.random() < 0.95 else draw.choice(tuple(_NAMES))
    event = {"ph": "X", "cat": category, "name": draw.choice(_NAMES[named]), "ts": start, **lane}
    if draw.random() < 0.95:
        event["dur"] = draw.choice(_LENGTHS)
    return event | {"args": _arguments(draw, category)}


def _arguments(draw: random.Random, category: str) -> dict[str, Any]:
    some: dict[str, Any] = {"correlation": draw.choice(_IDS)} if draw.random() < 0.8 else {}
    if draw.random() < 0.5:
        some["External id"] = draw.choice(_IDS)
    if category in _GPU:
        some |= {"device": draw.choice((0, 0, 0, 1, -1)), "stream": draw.choice((7, 7, 7, 20, 0, -1))}
        if draw.random() < 0.4:
            some |= {"grid": [draw.choice((0, 1, 256)), 1, 1], "block": [draw.choice((0, 32, 128)), 1, 1]}
            some |= {"blocks per SM": draw.choice((0, 0.5, 1e300)), "warps per SM": draw.choice((0, 8))}
            some |= {"bytes": draw.choice((0, 1, 1 << 20, 2**62)), "registers per thread": 32}
    elif category == "cuda_sync":
        some |= {"wait_on_stream": draw.choice((7, 20, -1)), "stream": draw.choice((7, 20, -1)), "device": 0}
        some["wait_on_cuda_event_record_corr_id"] = draw.choice(_IDS)
    elif category == "python_function":
        some |= {"Python id": draw.choice(_IDS), "Python parent id": draw.choice(_IDS)}
    elif draw.random() < 0.3:
        some |= {"Input Dims": [[64, 64], draw.choice(([64, 64], [], [0]))], "Input type": ["float", "float"]}
        some |= {"Sequence number": draw.choice(_IDS), "Fwd thread id": draw.choice(_FEW)}
    return some


def _memory(draw: random.Random) -> dict[str, Any]:
    size = draw.choice((1, 512, 1 << 20, 2**62)) * draw.choice((1, 1, -1))
    some = {"Bytes": size, "Addr": draw.choice((1, 2, 2**64 - 1)), "Device Type": draw.choice((0, 1, 1))}
    some |= {"Device Id": draw.choice((-1, 0, 0, 1))}
    if draw.random() < 0.7:
        some |= {
            "Total Allocated": draw.choice((0, 1 << 20, 2**62)),
            "Total Reserved": draw.choice((0, 2 << 20)),
        }
    return some
