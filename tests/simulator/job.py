"""Job: the settings of a simulated training job, faults included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.simulator.heap import MIB

Read = Literal["item", "cpu", "nonzero", "synchronize", "unread", "where"]
"""How check_alive waits for the GPU: `.item()`, `x.cpu()`, `x[x > 0]`, or torch.cuda.synchronize().

The last two are the fixes, which compute the check and do not wait: nothing is read, or torch.where masks."""

Leak = Literal["list", "kept_graph", "retained_graph", "hooks", "growing_cache", "gradients", "metrics"]
"""What retains memory in each step: see memory.py."""

Plateau = Literal["", "warm_up", "cache", "optimizer_state"]
"""What allocates in the first steps only."""

Side = Literal["narrow", "low_occupancy", "layout"]
"""Kernels of the side stream: few blocks, many registers, or copies that change a layout."""


SLOWER_FROM = 3
"""With six steps or more, most of them are slow then."""


@dataclass(frozen=True)
class Job:
    """Settings of a job. Times are µs. With the defaults the GPU never waits."""

    steps: int = 6
    blocks: int = 12
    kernel_us: float = 150  # the matmul of one block's forward pass
    small_us: float = 12  # the elementwise kernel after it
    launch_us: float = 5  # a launch call
    dispatch_us: float = 7  # an operator, from its start to its launch
    python_us: float = 5  # between operators
    workers: int = 4  # of the loader; 0 loads in the main thread
    batch_us: float = 6_000  # to load one batch
    batch_bytes: int = 8 * MIB
    pinned: bool = True
    graph: bool = False  # forward, backward and optimizer are one CUDA graph
    extra_python_us: float = 0  # in reweigh_tokens, each step
    slow_operator_us: float = 0  # one operator that runs on the CPU, each step
    parameters: int = 0  # of an optimizer that launches for each of them; 0: it launches for all at once
    checks: int = 0  # reads of a value on the GPU in each step, at most two a block
    read_by: Read = "item"
    workspace: int = 0  # cudaFree and cudaMalloc pairs in each step
    segments: int = (
        0  # of the allocator's cache, freed at the end of each step and allocated again in the next
    )
    pins: int = 0  # pinned buffers made in each step
    compile_us: float = 0  # compilation in each step
    warmup_us: float = 0  # compilation in the first step
    fresh_kernels: int = 0  # kernels of each step that no step before had: the launch call loads their module
    loads: int = 0  # modules loaded in each step, by calls of their own
    dump_bytes: int = 0  # read back in each step
    dump_pinned: bool = False  # into a pinned buffer, on a stream of its own, and the host does not wait
    fp32_blocks: int = 0  # blocks whose matmul is in FP32, off the tensor cores
    odd_blocks: int = 0  # blocks whose rows are not aligned for tensor cores
    narrow_blocks: int = 0  # blocks whose kernel has fewer thread blocks than the GPU has multiprocessors
    tail_blocks: int = 0  # blocks whose kernel has a few more thread blocks than the GPU runs at once
    even_waves: bool = False  # those kernels have smaller thread blocks, which fill the GPU
    attention: int = 0  # blocks with unfused attention
    fused_attention: bool = False
    layouts: int = 0  # blocks whose input is made contiguous first
    reduce_us: float = 0  # a collective after the backward pass, each step
    collect_us: float = 0  # garbage collection, each step
    uneven_us: float = 0  # Python in every fourth step only
    trips: int = 0  # tensors that go to the host and back in each step
    stall_us: float = 0  # the compute stream waits for something that is not in the trace
    weights_bytes: int = 200 * MIB
    activation_bytes: int = 5 * MIB  # that a block keeps for its backward pass
    leak_bytes: int = 0  # retained by each step, about
    leak: Leak = "list"
    host_leak_bytes: int = 0  # of the CPU's memory, retained by each step
    plateau: Plateau = ""
    plateau_bytes: int = 64 * MIB
    plateau_steps: int = 2  # steps after which the cache is full
    varying: float = 0  # the sizes of batches and activations vary by this share
    accumulate: int = 1  # steps whose gradients are accumulated before the optimizer's step
    spare: float = 1.05  # what the allocator has reserved, divided by what the job needs
    capacity_bytes: int = 16 * 2**30
    context_us: float = 0  # creating the context and loading libraries, in the first step
    earlier_us: float = 0  # work from before the recording, which the first step waits for
    trailing_us: float = 0  # of the host after the last step: writing a checkpoint, say
    helper_calls: int = 0  # calls of a tiny Python function in each block
    item_calls: int = 0  # likewise for each item that the training thread loads
    recorder_ns: float = 0  # what recording one Python frame or one operator costs the host
    compiled: int = 0  # graphs that torch.compile made of the forward pass; 0: it runs eagerly
    side_us: float = 0  # work on a stream of its own, each step, while the step computes
    side: Side = "narrow"
    contention: float = 0  # the host is that much slower if the loader has workers
    hand_over_us: float = 30  # to take a batch from a worker
    slower_by: float = 1  # kernels from step SLOWER_FROM on take that many times as long: clocks are lower
    with_steps: bool = True
    with_stacks: bool = True
    with_memory: bool = True
