"""Calls of the CUDA and HIP runtime and driver APIs, and CUPTI's records of overhead.

The names are those of the C functions: `cuda...` and `hip...` of the runtimes, `cu...` of NVIDIA's driver.
"""

from __future__ import annotations

from tb_gpudiag.trace.vocabulary.patterns import any_of

# Calls that return only when the device has caught up. Asynchronous copies that block all the same (to or
# from pageable memory) show it on the GPU's side only: see facts/core/handover.py.
BLOCKING_CALL = any_of(
    r"(cuda|hip)(Stream|Device|Event|Thread)Synchronize",
    r"cu(Stream|Ctx|Event)Synchronize",
    r"(cuda|hip)Memcpy(2D|3D|(To|From)\w+(?<!Async)|DtoH|HtoD|DtoD|WithStream)?",
    r"cuMemcpy(DtoH|HtoD|DtoD)?(_v2)?",
)
DEVICE_WAIT = any_of(r"((cuda|hip)(Device|Thread)|cuCtx)Synchronize")
EVENT_WAIT = any_of(r"(cuda|hip|cu)EventSynchronize")
STREAM_WAIT = any_of(r"(cuda|hip|cu)StreamSynchronize")

COPY_CALL = any_of(r"(cuda|hip|cu)Memcpy\w*")
EVENT_RECORD = any_of(r"(cuda|hip|cu)EventRecord\w*")

LAUNCH_CALL = any_of(r"\w*(Launch|Memcpy|Memset)\w*")
GRAPH_LAUNCH = any_of(r"(cuda|cu|hip)GraphLaunch\w*")

# Anything that gets memory from the driver, returns it, or maps it.
ALLOCATOR_CALL = any_of(
    r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|HostRegister|HostUnregister)\w*",
    r"(cuda|hip)(ExtMalloc|MemPool)\w*",
    r"cuMem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|HostAlloc|SetAccess)\w*",
    r"hipMem(Create|Map|Unmap|Release)\w*",
)
# The ones among them by which the caching allocator gets device memory and returns it.
DEVICE_ALLOCATION = any_of(r"(cuda|hip)(Malloc|MallocAsync)", r"cuMem(Create|Alloc(_v2)?)", r"hipMemCreate")
DEVICE_FREE = any_of(r"(cuda|hip)(Free|FreeAsync)", r"cuMem(Release|Free(_v2)?)", r"hipMemRelease")

# Calls that load, link or compile GPU code.
MODULE_LOAD_CALL = any_of(
    r"(cu|cuda|hip)(Module|Library)(Load|GetFunction|GetKernel)\w*",
    r"cuLink\w*",
    r"(nv|hip)rtc\w*",
)

# Calls that create a context, query a device or set up a stream: over in microseconds unless they are the
# first to touch the device or a library.
INITIALIZING_CALL = any_of(
    r"(cuda|hip)((Get|Set)Device|DeviceGet|Init|DriverGetVersion|RuntimeGetVersion)\w*",
    r"(cuda|hip)((Stream|Event)Create|Func(Get|Set)|Occupancy)\w*",
    r"cu(Init|DeviceGet|DevicePrimaryCtx|Ctx(Create|GetDevice|SetCurrent)|(Stream|Event)Create)\w*",
    r"cu(GetProcAddress|FuncGet|FuncSet|Occupancy)\w*",
)

LAZY_LOADING = "Lazy Function Loading"
"""CUPTI's `overhead` record of the driver loading a kernel at its first use."""

COMMAND_BUFFER_FULL = "Command Buffer Full"
"""CUPTI's `overhead` record of a launch queue at its bound."""
