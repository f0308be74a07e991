"""DistributedDataParallel's own work on the host: broadcasting buffers, copying buckets into gradients."""

from __future__ import annotations

from tb_gpudiag.vocabulary.patterns import PATH, any_of

FORWARD = any_of(
    r"DistributedDataParallel\.forward", PATH + r"torch/nn/parallel/distributed\.py\(\d+\): forward"
)

# Buffers are packed into one tensor, broadcast, and unpacked,
BROADCAST = any_of(r"aten::(un)?flatten_dense_tensors", r"c10d::broadcast_", r"nccl:broadcast")
# and copied back one by one.
UNPACKING = any_of(
    r"record_param_comms",
    r"aten::(_foreach_)?copy_",
    r"aten::(view|narrow|slice|detach|alias|as_strided|reshape|select|split\w*|expand|empty\w*)",
)

BUCKET_TO_GRADIENT = any_of(r"torch\.distributed\.ddp\.reducer::copy_bucket_to_grad")
