"""The rules, in order: if two would claim the same time, the earlier one gets it."""

from __future__ import annotations

from tb_gpudiag.rules.idle import (
    allocator_in_step,
    anomaly_mode,
    compilation_in_step,
    host_bound,
    input_pipeline,
    queued_not_visible,
    step_variance,
)
from tb_gpudiag.rules.kernels import (
    cpu_computing,
    data_movement,
    evaluation_in_step,
    fp32_matmul,
    fp64_kernels,
    low_bandwidth,
    memory_bound_kernels,
    occupancy,
    slow_gpu,
    slow_matmul,
    small_grids,
    tf32_matmul,
    unaligned_matmul,
    unfused_attention,
    weight_reading,
)
from tb_gpudiag.rules.launches import graph_node_gaps, launch_bound, small_kernels
from tb_gpudiag.rules.memory import (
    forward_as_training,
    host_memory_leak,
    memory_fragmentation,
    memory_leak,
    memory_peak,
)
from tb_gpudiag.rules.ranks import exposed_communication
from tb_gpudiag.rules.recording import (
    lost_kernels,
    no_gpu,
    no_stacks,
    no_steps,
    partial_file,
    profiler_overhead,
    secrets_recorded,
    unlinked_kernels,
    unrecorded_graphs,
    warmup_recorded,
)
from tb_gpudiag.rules.rule import Rule
from tb_gpudiag.rules.transfers import copy_patterns, exposed_copies, host_sync, pageable_copies

RULES: tuple[Rule, ...] = (
    input_pipeline.RULE,
    compilation_in_step.RULE,
    allocator_in_step.RULE,
    anomaly_mode.RULE,  # before the waits and launches that it consists of
    copy_patterns.RULE,  # before the synchronizations and pageable copies of a round trip
    host_sync.RULE,
    pageable_copies.RULE,
    exposed_copies.RULE,
    small_kernels.RULE,
    launch_bound.RULE,
    graph_node_gaps.RULE,
    host_bound.RULE,
    queued_not_visible.RULE,
    exposed_communication.RULE,
    # Time in which the GPU computes. A slow GPU comes first: it explains what others would find.
    slow_gpu.RULE,
    fp64_kernels.RULE,
    fp32_matmul.RULE,
    unaligned_matmul.RULE,
    unfused_attention.RULE,
    weight_reading.RULE,
    small_grids.RULE,
    slow_matmul.RULE,
    occupancy.RULE,
    low_bandwidth.RULE,
    data_movement.RULE,
    memory_bound_kernels.RULE,
    tf32_matmul.RULE,  # after what would make the same matmuls faster in TF32
    cpu_computing.RULE,
    evaluation_in_step.RULE,  # what it takes may be claimed by a rule about its kernels
    # The same time seen another way: claims none.
    step_variance.RULE,
    # Memory: these claim no time.
    memory_leak.RULE,
    memory_peak.RULE,
    memory_fragmentation.RULE,
    host_memory_leak.RULE,
    forward_as_training.RULE,
    # The recording: these claim no time.
    no_steps.RULE,
    warmup_recorded.RULE,
    no_stacks.RULE,
    unlinked_kernels.RULE,
    no_gpu.RULE,
    partial_file.RULE,
    profiler_overhead.RULE,
    secrets_recorded.RULE,
    unrecorded_graphs.RULE,
    lost_kernels.RULE,
)
