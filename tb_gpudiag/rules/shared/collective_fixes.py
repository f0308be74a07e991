"""Fixes of exposed communication, by kind of collective."""

from __future__ import annotations

from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.rule import Fix
from tb_gpudiag.vocabulary.collective_kinds import Collective

_SLOW_RANK = """
# Compare the ranks' traces: a rank that arrives last shows short collectives, the others long ones.
# If all of them are long, check the transport: NCCL_DEBUG=INFO says which links NCCL or RCCL uses."""

LATE_HOSTS = Fix(
    "Make the ranks' hosts faster first: this rank's host keeps its GPU idle even longer, and every "
    "collective waits for the latest rank.",
    """# 1. Fix what keeps each rank's GPU idle: the other findings, and those of the other ranks' traces.
# 2. Record all ranks again. What is then exposed in the rank that arrives last is not waiting.""",
    "https://docs.pytorch.org/docs/stable/profiler.html",
)
"""While hosts are late, most of a collective's time is waiting, and tuning what is sent changes little."""

_FIXES = {
    Collective.ALL_REDUCE: Fix(
        "Overlap the all-reduces with the backward pass, reduce less often, or find the rank that the others "
        "wait for.",
        """model = DistributedDataParallel(
    model,
    bucket_cap_mb=100,              # fewer, larger all-reduces; smaller ones begin earlier: try both
    gradient_as_bucket_view=True,   # no copy into the bucket
)

# Accumulate gradients, and communicate once for several batches:
with model.no_sync():
    criterion(model(x), y).backward()
"""
        + _SLOW_RANK,
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
    ),
    Collective.SHARDED: Fix(
        "Gather the next layers' weights while these compute, and shard less if memory allows.",
        """# FSDP: one unit per block, not one for the whole model; the next unit's weights are on their way.
model = FullyShardedDataParallel(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
    forward_prefetch=True,
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,   # or SHARD_GRAD_OP: no all-gather in backward
)

# FSDP2 (fully_shard):
for block, following in itertools.pairwise(model.blocks):
    block.set_modules_to_forward_prefetch([following])
"""
        + _SLOW_RANK,
        "https://docs.pytorch.org/docs/stable/fsdp.html",
    ),
    Collective.ALL_TO_ALL: Fix(
        "Start the next batch's exchange while the GPU computes this one, send less, and balance the shards "
        "(embedding tables or experts).",
        """# Embedding tables (TorchRec): the next batch's sparse features travel while this one computes.
pipeline = TrainPipelineSparseDist(model, optimizer, device)

# Send pooled embeddings and their gradients in 16 bits:
codecs = get_qcomm_codecs_registry(
    QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16)
)

# Balance what each rank sends: plan table-wise, row-wise or column-wise shards from real statistics.
plan = EmbeddingShardingPlanner(topology=topology).collective_plan(model, sharders, group)

# Experts: limit tokens per expert, and exchange one half of the batch while the other half computes.
"""
        + _SLOW_RANK,
        "https://docs.pytorch.org/torchrec/",
    ),
    Collective.POINT_TO_POINT: Fix(
        "Shorten the pipeline's bubble: more microbatches, an interleaved schedule, stages of equal length.",
        """# While a stage has no microbatch, it waits in send or receive.
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * n_stages, loss_fn=loss)   # instead of GPipe
# Move layers from the slowest stage to the others until all take equally long.""",
        "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    ),
    Collective.BROADCAST: Fix(
        "Broadcast less: not in every step, and not from a rank that the others wait for.",
        """# Buffers that need not be equal on all ranks, such as BatchNorm's running statistics:
model = DistributedDataParallel(model, broadcast_buffers=False)
# Small objects: one broadcast of a packed tensor instead of many, or compute them on every rank."""
        + "\n"
        + _SLOW_RANK,
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Collective.OTHER: Fix(
        "Overlap communication with computing, communicate less often, or find the rank that the others wait "
        "for.",
        """# Launch early and wait late; compute in between what does not need the result:
work = torch.distributed.all_reduce(x, async_op=True)
y = compute_something_else()
work.wait()
"""
        + _SLOW_RANK,
        "https://docs.pytorch.org/docs/stable/distributed.html",
    ),
}

_TENSOR_PARALLEL = Fix(
    "Split the model over fewer GPUs, or use all-reduces made for small messages.",
    """# Without a backward pass, all-reduces usually join the parts of tensor-parallel layers: two per block.
# Fewer parts and more replicas communicate less; more tokens per batch spread what is left.
#   vllm serve MODEL --tensor-parallel-size 2 --data-parallel-size 4
# Between GPUs of one node, one-shot all-reduces (custom, symmetric memory) beat NCCL on small messages."""
    + "\n"
    + _SLOW_RANK,
    "https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html",
)


def collective_fix(kind: Collective, job: JobKind) -> Fix:
    """Return the fix for a kind of collective. Inference has no gradients to reduce."""
    if kind is Collective.ALL_REDUCE and job.training is False:
        return _TENSOR_PARALLEL
    return _FIXES[kind]
