"""Operators as PyTorch's dispatcher and autograd name them: `aten::...`, `c10d::...`, autograd's nodes."""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of, rows_of

# What an iterator of torch's DataLoader runs first, one after the other: it draws a seed for its workers.
SEED = (any_of(r"aten::empty"), any_of(r"aten::random_"), any_of(r"aten::item"))

# torch's own operators.
ATEN = any_of(r"aten::.*", flags=re.S)

# Matrix products and the layers that consist of one.
BATCHED_MATMUL = any_of(r"aten::(bmm|baddbmm_?|_baddbmm\w*|matmul|einsum)")
LINEAR = any_of(r"aten::linear")

MATMUL_FACTORS = {name: (int(first), bool(t)) for name, first, t in rows_of("matmuls.tsv")}
"""Operator -> (index of the first of the two inputs that it multiplies, whether the second is transposed)."""

VECTOR_PRODUCTS = frozenset({"aten::mv", "aten::addmv", "aten::addmv_"})
"""Of these, the second factor is a vector."""

GROUPED = frozenset({"aten::_grouped_mm", "aten::_scaled_grouped_mm"})
"""Many matmuls in one, with the sizes of the groups in a tensor that the trace does not have."""

NUMBER_BYTES = {name: int(size) for name, size, _ in rows_of("number_formats.tsv")}
"""Number format of an input -> bytes of one number, under the names that number_format returns."""

EIGHT_BITS = frozenset(name for name in NUMBER_BYTES if name.startswith("float8"))


def number_format(name: str) -> str:
    """Return a number format under the name that NUMBER_BYTES has. Profilers write `c10::BFloat16`,
    `BFloat16` or `bfloat16`."""
    return name.removeprefix("c10::").lower()


# A node of autograd's graph as it runs backward: one of torch's own, or a function of the user's own.
AUTOGRAD_NODE = any_of(r"\w+Backward\d*", r"autograd::engine::evaluate_function: \w+")
# One that may run Python: torch numbers its own.
USER_NODE = any_of(r"(autograd::engine::evaluate_function: )?\w+Backward")
# What the name of a function's node has after the function's own name.
NODE_SUFFIX = "Backward"

# cuDNN's attention, which cuDNN plans anew for each new shape.
CUDNN_ATTENTION = any_of(r"aten::_cudnn_attention_(forward|backward)")

# Operators that move data without computing, by what they are called for.
CAST = any_of(r"aten::(to|_to_copy|type_as|float|half|bfloat16|double)")
LAYOUT_CHANGE = any_of(r"aten::(contiguous|clone|reshape|flatten|_reshape_copy|unfold)")
COPY = any_of(r"aten::copy_")
# c10d records each collective, with what it sends, as this.
COLLECTIVE_PARAMETERS = "record_param_comms"
# nn.DataParallel copies the model to each GPU and adds up the gradients with these functions of its own.
DATA_PARALLEL = any_of(r"ReduceAddCoalesced|BroadcastBackward|GatherBackward")
# Operators that all of these call in the end to launch the kernel or the copy.
DATA_MOVER = any_of(r"aten::(copy_|clone|_to_copy)")
# Operators that copy tensors one after the other into a new one.
JOINER = any_of(r"aten::(cat|stack)")
# Operators that may copy between host and device.
DEVICE_COPY = any_of(r"aten::(to|_to_copy|copy_|cuda|_copy_from|pin_memory|_pin_memory)")

# Operators that make the host wait for a value from the GPU.
DATA_DEPENDENT_SIZE = any_of(
    r"aten::(nonzero(_numpy)?|argwhere|masked_select|_?unique\w*|repeat_interleave|_?coalesce)"
)
CONDITION = any_of(r"aten::is_nonzero")
READ_VALUE = any_of(r"aten::(item|_local_scalar_dense)")
SINGLE_VALUE = any_of(r"aten::(item|_local_scalar_dense|equal)")

# A copy to another device or number format.
TO_COPY = any_of(r"aten::_to_copy")
# torch's numbers for formats, as the profiler records an argument, under the names of NUMBER_BYTES.
NUMBER_FORMATS = {number: name for name, _, number in rows_of("number_formats.tsv") if number}

# Operators that a CPU never runs. (It does run aten::cudnn_is_acceptable and aten::_use_cudnn_ctc_loss.)
GPU_ONLY = any_of(
    r"aten::_?(cudnn|miopen)_(convolution|depthwise|batch_norm|rnn|attention|ctc_loss|grid|affine|init)\w*",
    r"aten::_scaled_dot_product_(efficient|cudnn)_attention\w*",
    r"aten::_(efficient|flash|cudnn)_attention_(forward|backward)",
    r"aten::_thnn_fused_\w+",
    r"aten::cuda",
    r"triton_\w+",
    r"(nccl|rccl|xccl):.*",
    flags=re.S,
)
# And those that only a CPU runs.
CPU_ONLY = any_of(r"aten::_?mkldnn_\w+", r"(mkldnn|onednn)::\w+", r"aten::\w+_for_cpu(_backward)?")
APPLE_ONLY = any_of(r"aten::_?mps_\w+", r"aten::_?lstm_mps\w*", r"aten::\w+_for_mps")

# With torch.autograd.set_detect_anomaly, a node calls these on each gradient: isnan().any().item().
# What adds a gradient to the others hands none on.
ACCUMULATES = any_of(r".*AccumulateGrad")
ADDS = any_of(r"aten::add_?")
FINDS_NAN = any_of(r"aten::isnan")
CHECKS_FOR_NAN = any_of(r"aten::(isnan|any|item|is_nonzero|_local_scalar_dense)")

# One operator for many tensors, as optimizers with foreach or fused call them.
FOR_MANY_TENSORS = any_of(r"aten::_(foreach|fused)_\w+")

# In training mode a layer normalizes by its batch, or drops values.
BATCH_NORM = any_of(r"aten::batch_norm")
ACTIVE_DROPOUT = any_of(r"aten::(_fused|native)_dropout")

# Operators that may wait for a GPU, for memory or for another thread.
WAITS_OR_COPIES = any_of(
    r"aten::(item|_local_scalar_dense|equal|is_nonzero|nonzero\w*|to|_to_copy|copy_|clone|cuda|pin_memory)",
    r"aten::_?(cat|stack|pin_memory|unique\w*|foreach_copy_)",
    r"(nccl|rccl|xccl|gloo|mpi|ucc|c10d)\b.*|record_param_comms",
    r"autograd::engine::.*|\w+Backward\d*|CompiledFunction\w*|triton_\w+",
    flags=re.S,
)
# Operators that make another view of a tensor, or look at it.
COMPUTES_NOTHING = any_of(
    r"aten::(view|_unsafe_view|t|transpose|permute|as_strided|expand|expand_as|select|slice|narrow|split\w*)",
    r"aten::(squeeze|unsqueeze|detach|alias|unbind|chunk|movedim|result_type|lift_fresh|is_same_size)_?",
)

# Operators that only get memory, for the operator that called them.
GETS_MEMORY = any_of(r"aten::(_?empty\w*|new_empty\w*|resize_\w*|set_|_resize_output_?)")
# Operators that make a tensor from nothing, or from numbers. Autograd does not see them.
MAKES_TENSOR = any_of(
    r"aten::(_?empty|new|zeros|ones|full|rand|arange|linspace|eye|normal|scalar_tensor|tri[lu]_indices)\w*",
    r"aten::(detach_?|lift_fresh|alias)",
)
# Operators that fill a tensor with random numbers, as a stand-in for data or as noise. Dropout has its own.
RANDOM = any_of(r"aten::(randn|rand|randint|randperm|normal|uniform|random)(_like)?_?")
# Operators that make a tensor of one number, or of numbers in a row.
FILLED = any_of(r"aten::((ones|zeros|full)(_like)?|new_(ones|zeros|full)|arange|linspace)")
# Operators that make a sparse tensor of compressed rows or columns.
MAKES_COMPRESSED = any_of(r"aten::_?(to_)?sparse_(csr|csc|bsr|bsc|compressed)(_tensor\w*)?")
# Operators that make one larger tensor of several.
JOINS = any_of(r"aten::_?(cat|concat|concatenate|stack|hstack|vstack|append)\w*", flags=re.S)
# Operators with which a job makes a copy of its own to keep. A graph keeps batches: copies to a device.
OWN_COPY = any_of(r"aten::(clone|detach_copy|_?cat|_?stack)")
# Operators that make samples. Dropout's masks are some, too.
SAMPLES = any_of(r"aten::(rand|randn|randint|randperm|normal|bernoulli)(_like|_)?")
# Operators whose result is another one in each call.
DRAWS = any_of(r"aten::(rand\w*|normal_?|uniform_?|bernoulli_?|multinomial|exponential_?|\w*dropout)")
# Operators that make a tensor of nothing: a module's state, but no output of its.
MAKES_STATE = any_of(r"aten::(new_)?(zeros|ones|full|arange|linspace|eye)(_like)?")
# Operators that count or sum up what they are given, and copies: their results are metrics.
# Those of others, such as samples, masks and maps of attention, are none.
SUMS_UP = any_of(
    r"aten::(b?mm|matmul|einsum|clone)",
    r"aten::(nan|log|cum)?(sum\w*|mean|prod|std|std_mean|var|var_mean|median|quantile|norm)",
    r"aten::(linalg_)?(vector_|matrix_)?norm|aten::(a?max|a?min|aminmax|argmax|argmin|topk|kthvalue|mode)",
    r"aten::(bincount|histc|histogram\w*|count_nonzero|all|any|trace|corrcoef|cov)",
)
# Operators that a loss ends with.
LOSS = any_of(r"aten::(\w*loss\w*|cross_entropy\w*|sum|mean|binary_cross_entropy\w*|kl_div|norm)", flags=re.S)

# Without Python frames, what default_collate and pinning look like.
MULTIPLIES = any_of(
    r"\w+::(\w*_)?(add|badd|int_|scaled_|sparse_)?b?mm\w*",
    r"\w+::\w*(conv|linear|matmul|einsum|attention|lstm|gru|rnn)\w*",
)
"""Operators that multiply matrices or tensors: convolutions, linear layers, attention, recurrent layers."""

LOOKS_UP = any_of(r"aten::(embedding|_?embedding_bag)")
TABLE_GRADIENT = any_of(r"aten::(embedding_dense|_embedding_bag_dense)_backward")
"""Operators that make a gradient for all rows of a table, and fill most of it with zeros."""

COLLATE = any_of(r"aten::(_?stack|_?cat)")
PIN = any_of(r"aten::_?pin_memory")

# Autograd's engine running one node of the backward pass.
BACKWARD_NODE = any_of(r"autograd::engine::evaluate_function.*", flags=re.S)

# Collective operations of c10d and its back ends, on the host's side.
COLLECTIVE = any_of(
    r"(nccl|rccl|gloo|mpi|ucc):.*",
    r"c10d::.*",
    r"_c10d_functional::.*",
    r"record_param_comms",
    r"ncclGroup\w+",
)

CHEAPER = [(any_of(names), way) for names, way in rows_of("cheaper_operators.tsv")]
"""Names of operators, and why one takes long and what to use instead, as the rest of a sentence."""
