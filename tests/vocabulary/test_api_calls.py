"""Calls of Intel's runtime (`ur...`) and driver (`ze...`): what each does. Traces have CUDA's and ROCm's."""

from __future__ import annotations

from tb_gpudiag.vocabulary import api_calls, kernel_names
from tests.with_each import with_each

MEANINGS = (
    "LAUNCH_CALL",
    "KERNEL_LAUNCH",
    "GRAPH_LAUNCH",
    "COPY_CALL",
    "BLOCKING_CALL",
    "DEVICE_WAIT",
    "STREAM_WAIT",
    "EVENT_WAIT",
    "ALLOCATOR_CALL",
    "DEVICE_ALLOCATION",
    "DEVICE_FREE",
    "MODULE_LOAD_CALL",
)


@with_each(
    ("call", "means"),
    [
        ("urEnqueueKernelLaunch", "LAUNCH_CALL KERNEL_LAUNCH"),
        ("urEnqueueKernelLaunchWithArgsExp", "LAUNCH_CALL KERNEL_LAUNCH"),
        ("urEnqueueCooperativeKernelLaunchExp", "LAUNCH_CALL KERNEL_LAUNCH"),
        ("piextEnqueueCooperativeKernelLaunch", "LAUNCH_CALL KERNEL_LAUNCH"),
        ("zeCommandListAppendLaunchKernelWithParameters", "LAUNCH_CALL KERNEL_LAUNCH"),
        ("urEnqueueCommandBufferExp", "LAUNCH_CALL GRAPH_LAUNCH"),
        ("urEnqueueGraphExp", "LAUNCH_CALL GRAPH_LAUNCH"),
        ("zeCommandListImmediateAppendCommandListsExp", "LAUNCH_CALL"),
        ("urEnqueueUSMMemcpy2D", "LAUNCH_CALL COPY_CALL"),
        ("urEnqueueMemBufferWrite", "LAUNCH_CALL COPY_CALL"),
        ("urEnqueueUSMFill", "LAUNCH_CALL"),
        ("zeCommandListAppendMemoryCopyRegion", "LAUNCH_CALL COPY_CALL"),
        ("urQueueFinish", "BLOCKING_CALL STREAM_WAIT"),
        ("urEventWait", "BLOCKING_CALL EVENT_WAIT"),
        ("urEnqueueEventsWait", ""),  # the queue waits, not the host
        ("zeCommandListAppendBarrier", ""),
        ("zeEventQueryStatus", ""),
        ("zeDeviceSynchronize", "BLOCKING_CALL DEVICE_WAIT"),
        ("zeCommandQueueSynchronize", "BLOCKING_CALL STREAM_WAIT"),
        ("zeEventHostSynchronize", "BLOCKING_CALL EVENT_WAIT"),
        ("urUSMDeviceAlloc", "ALLOCATOR_CALL DEVICE_ALLOCATION"),
        ("urEnqueueUSMFreeExp", "ALLOCATOR_CALL"),
        ("urPhysicalMemCreate", "ALLOCATOR_CALL DEVICE_ALLOCATION"),
        ("zeVirtualMemMap", "ALLOCATOR_CALL"),
        ("zeContextMakeMemoryResident", "ALLOCATOR_CALL"),
        ("zeMemFreeExt", "ALLOCATOR_CALL DEVICE_FREE"),
        ("urProgramBuildExp", "MODULE_LOAD_CALL"),
    ],
)
def test_a_call_of_intels_runtime_means(call: str, means: str) -> None:
    assert [name for name in MEANINGS if getattr(api_calls, name).fullmatch(call)] == means.split()


@with_each(
    ("copy", "direction"),
    [
        ("Memcpy M2D (Host (User Allocated) -> Device)", kernel_names.TO_DEVICE),
        ("Memcpy H2D (Host (Driver Allocated) -> Device)", kernel_names.TO_DEVICE),
        ("Memcpy D2M (Device -> Host (User Allocated))", kernel_names.TO_HOST),
        ("Memcpy D2D (Device -> Device)", kernel_names.ON_DEVICE),
        ("Memcpy S2D (Shared -> Device)", None),
        ("Memcpy HtoD (Pinned -> Device)", kernel_names.TO_DEVICE),
    ],
)
def test_a_copys_name_tells_its_direction(copy: str, direction: object) -> None:
    kinds = (kernel_names.TO_DEVICE, kernel_names.TO_HOST, kernel_names.ON_DEVICE)
    assert [kind for kind in kinds if kind.fullmatch(copy)] == ([direction] if direction else [])
