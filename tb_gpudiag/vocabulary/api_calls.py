"""Calls of the runtime and driver APIs of GPUs, and CUPTI's records of overhead.

The names are those of the C functions: `cuda...` and `hip...` of the runtimes, `cu...` of NVIDIA's driver.
Intel GPUs have `ur...` of SYCL's Unified Runtime, `pi...` of the interface before it, `ze...` of Level Zero.
And calls that put something into one of Python's containers, or take something out.
"""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of, lazy_re

# Calls that return only when the device has caught up. Asynchronous copies to or from pageable memory also
# block, but only the GPU's side shows that: see facts/core/handover.py.
BLOCKING_CALL = any_of(
    r"(cuda|hip)(Stream|Device|Event|Thread)Synchronize",
    r"cu(Stream|Ctx|Event)Synchronize",
    r"(cuda|hip)Memcpy(2D|3D|(To|From)(Symbol|Array)(_\w+)?|DtoH|HtoD|DtoD|WithStream)?",
    r"cuMemcpy(DtoH|HtoD|DtoD)?(_v2)?",
    r"(ur|pi)(Queue(Finish|Synchronize)|Events?Wait)",
    r"ze(Event|Fence|CommandList)HostSynchronize",
    r"ze(CommandQueue|Device)Synchronize",
)
DEVICE_WAIT = any_of(r"((cuda|hip)(Device|Thread)|cuCtx|zeDevice)Synchronize")
EVENT_WAIT = any_of(r"(cuda|hip|cu)EventSynchronize", r"(ur|pi)Events?Wait", r"zeEventHostSynchronize")
STREAM_WAIT = any_of(
    r"(cuda|hip|cu)StreamSynchronize",
    r"(ur|pi)Queue(Finish|Synchronize)",
    r"ze(CommandQueueSynchronize|CommandListHostSynchronize)",
)

COPY_CALL = any_of(
    r"(cuda|hip|cu)Memcpy\w*", r"(ur|pi)\w*Mem(cpy|Buffer(Copy|Read|Write))\w*", r"ze\w*MemoryCopy\w*"
)
# Intel's recorder has the calls of the runtime that submit work; its waits are calls of the driver (`ze...`).
SUBMITTED_ONLY = any_of(r"(ur|pi|piext)[A-Z]\w*")
EVENT_RECORD = any_of(r"(cuda|hip|cu)EventRecord\w*")

LAUNCH_CALL = any_of(
    r"\w*(Launch|Memcpy|Memset)\w*",
    r"(ur|pi)\w*Enqueue\w*(Fill|Copy|Read|Write|Prefetch)\w*",
    r"zeCommandListAppend(Memory|Image)(Copy|Fill|Prefetch)\w*",
    r"urEnqueue(CommandBuffer|Graph)\w*",
    r"ze(CommandQueueExecute|CommandListImmediateAppend)CommandLists\w*",
)
KERNEL_LAUNCH = any_of(
    r"(cuda|hip|cu)\w*Launch\w*Kernel\w*",
    r"(ur|pi|piext)Enqueue(Cooperative)?(KernelLaunch|NDRange)\w*",
    r"zeCommandListAppendLaunch\w*",
)
GRAPH_LAUNCH = any_of(r"(cuda|cu|hip)GraphLaunch\w*", r"urEnqueue(CommandBuffer|Graph)\w*")
# In this call, the host hands over the nodes one by one.
GRAPH_LAUNCH_BY_NODE = any_of(r"hipGraphLaunch\w*")
CAPTURE_BEGIN = any_of(r"(cuda|cu|hip)StreamBeginCapture\w*")
CAPTURE_END = any_of(r"(cuda|cu|hip)StreamEndCapture\w*")

# Anything that gets memory from the driver, returns it, or maps it.
ALLOCATOR_CALL = any_of(
    r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|HostRegister|HostUnregister)\w*",
    r"(cuda|hip)(ExtMalloc|MemPool)\w*",
    r"cuMem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|HostAlloc|SetAccess)\w*",
    r"hipMem(Create|Map|Unmap|Release)\w*",
    r"(ur|piext|urEnqueue)USM((Device|Host|Shared)Alloc|Free)(Exp)?",
    r"zeMem(Alloc(Device|Host|Shared)|Free(Ext)?)",
    r"(ur|ze)(VirtualMem|PhysicalMem)(Create|Destroy|Release|Map|Unmap|Reserve|Free|SetAccess)\w*",
    r"zeContext(MakeMemoryResident|EvictMemory)",
)
# The calls among them with which the caching allocator gets device memory and returns it.
DEVICE_ALLOCATION = any_of(
    r"(cuda|hip)(Malloc|MallocAsync)",
    r"cuMem(Create|Alloc(_v2)?)",
    r"hipMemCreate",
    r"(ur|piext)USMDeviceAlloc",
    r"zeMemAllocDevice",
    r"(ur|ze)PhysicalMemCreate",
)
DEVICE_FREE = any_of(
    r"(cuda|hip)(Free|FreeAsync)",
    r"cuMem(Release|Free(_v2)?)",
    r"hipMemRelease",
    r"(ur|piext)USMFree",
    r"zeMemFree(Ext)?",
    r"urPhysicalMemRelease",
    r"zePhysicalMemDestroy",
)

# Calls that load, link or compile GPU code.
MODULE_LOAD_CALL = any_of(
    r"(cu|cuda|hip)(Module|Library)(Load|GetFunction|GetKernel)\w*",
    r"(cuda|hip)GetSymbol\w*",  # the first one loads the module that has the symbol
    r"cuLink\w*",
    r"(nv|hip)rtc\w*",
    r"(ur|pi)Program(Build|Compile|Link|Create)\w*",
    r"zeModule(Create|DynamicLink)\w*",
)

# Calls that create a context, query a device or set up a stream: over in microseconds unless they are the
# first to touch the device or a library.
INITIALIZING_CALL = any_of(
    r"(cuda|hip)((Get|Set)Device|DeviceGet|Init|DriverGetVersion|RuntimeGetVersion)\w*",
    r"(cuda|hip)((Stream|Event)Create|Func(Get|Set)|Occupancy)\w*",
    r"cu(Init|DeviceGet|DevicePrimaryCtx|Ctx(Create|GetDevice|SetCurrent)|(Stream|Event)Create)\w*",
    r"cu(GetProcAddress|FuncGet|FuncSet|Occupancy)\w*",
    r"(ur|pi)(Context|Queue|Platform|Device)(Create|Get)\w*",
    r"ze(Init|ContextCreate|Driver|Device(Get|Can)|CommandQueueCreate|CommandListCreate)\w*",
)

LAZY_LOADING = frozenset({"Lazy Function Loading", "Runtime Triggered Module Loading"})
"""CUPTI's `overhead` records of the driver loading a kernel, or the module that has it, at its first use."""

COMMAND_BUFFER_FULL = "Command Buffer Full"
"""CUPTI's `overhead` record of a launch queue at its bound."""


# The recorder names a method by the first object it saw it called on. When a job makes its model, torch looks
# at stack traces, so that all lists' methods have the name of that subclass.
_LIST_SUBCLASS = "StackSummary"
_CONTAINER = rf"(list|{_LIST_SUBCLASS}|dict|set|collections\.(deque|OrderedDict|defaultdict)) object at .*"

# A module's hooks stay with it. Those of a tensor go with its graph.
_HOOKS = r"(.*/)?torch/nn/modules/module\.py\(\d+\): register_(full_)?(forward|backward)_(pre_)?hook"
_NO_HOOKS = r"(.*/)?torch/utils/hooks\.py\(\d+\): remove"
_MODULES = r"(.*/)?torch/nn/modules/container\.py\(\d+\): (append|extend|insert)"
_NO_MODULES = r"(.*/)?torch/nn/modules/container\.py\(\d+\): (pop|__delitem__)"

ADDS = any_of(
    rf"<built-in method (append|appendleft|extend|insert|add|update|setdefault|put) of {_CONTAINER}",
    r"<built-in function (heappush|heappushpop|heapreplace)>",
    _HOOKS,
    _MODULES,
    flags=re.S,
)
REMOVES = any_of(
    rf"<built-in method (pop|popleft|popitem|remove|clear|discard) of {_CONTAINER}",
    r"<built-in function (heappop|heappushpop|heapreplace)>",
    _NO_HOOKS,
    _NO_MODULES,
    flags=re.S,
)
TORCH_CALLS = any_of(_HOOKS, _NO_HOOKS, _MODULES, _NO_MODULES, flags=re.S)
"""Those of the above that are functions of torch."""

HEAP, HOOKS, MODULES = "heap", "hooks", "modules"
"""Kinds of containers that are no type of Python's own."""

_CALL = lazy_re(r"<built-in method (\w+) of (?:collections\.)?(\w+) object at ")
_HEAP_CALL = lazy_re(r"<built-in function (\w+)>")
_FUNCTION = lazy_re(r".*\(\d+\): (\w+)")


def call_of(name: str) -> tuple[str, str]:
    """Return the container's type and the method, such as ("list", "append"), of a name that is one of the
    above. Addresses in names are not reliable: the recorder may keep the first one it saw."""
    if (found := _CALL.match(name)) is not None:
        return "list" if found[2] == _LIST_SUBCLASS else found[2], found[1]
    if (found := _HEAP_CALL.match(name)) is not None:
        return HEAP, found[1]
    if (found := _FUNCTION.fullmatch(name)) is None:
        return "", ""
    return HOOKS if "hook" in name else MODULES, found[1]
