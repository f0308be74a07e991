"""The usual causes of a memory leak, and how to fix each."""

from __future__ import annotations

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.rule import fix_code

_CODE = fix_code("tb_gpudiag.rules.memory.memory_leak")


@dataclass(frozen=True)
class LeakCause:
    """A usual cause of a leak: its name, an explanation and a fix."""

    name: str
    summary: str
    fix: str
    code: str
    url: str = "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory"


GRAPH = LeakCause(
    "retained autograd graph",
    "The activations of whole forward passes stay allocated. Something, such as a list, holds a loss or an "
    "output together with its graph, or the graph is retained.",
    "Keep numbers instead of tensors with a graph, run what needs no gradients under torch.no_grad(), and "
    "avoid retain_graph=True and create_graph=True.",
    _CODE["graph"],
)
CACHE = LeakCause(
    "growing cache",
    "Every step concatenates tensors with new rows and replaces them by the larger result: a cache without a "
    "limit, such as the keys and values of attention.",
    "Limit the cache: drop old entries, or allocate it once at its full size and write into it.",
    _CODE["cache"],
    "https://huggingface.co/docs/transformers/kv_cache",
)
HOOKS = LeakCause(
    "retained module outputs",
    "The outputs of one kind of module stay allocated, but no loss does. A list of results, a forward hook "
    "or the module itself holds them.",
    "Keep only what you need of the last step, on the host. Write evaluation results to disk, or keep "
    "numbers instead of outputs. If a forward hook keeps them, remove it when it is no longer needed.",
    _CODE["hooks"],
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",
)
LARGER = LeakCause(
    "growing tensors",
    "Every step replaces tensors by larger ones, always by the same amount: a buffer grows, or batches do.",
    "Limit the buffer, or allocate it once at its full size. If batches or sequences grow on purpose, this "
    "is not a leak: make sure that the largest one fits.",
    _CODE["larger"],
)
GRADIENTS = LeakCause(
    "retained gradients",
    "The backward pass allocated what stays: something holds gradients in addition to the parameters, or "
    "gradients have a graph of their own (create_graph=True).",
    "Keep a number per gradient instead of the gradient, and avoid create_graph=True, which gives gradients "
    "a graph.",
    _CODE["gradients"],
    "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html",
)
METRICS = LeakCause(
    "retained small tensors",
    "Small tensors allocated outside of the model's modules all stay. Usually a list collects the metrics of "
    "each step as tensors.",
    "Accumulate into one tensor in place, and copy it to the host once every many steps.",
    _CODE["metrics"],
)
OTHER = LeakCause(
    "",
    "Something keeps what this code allocates: a list, a dictionary, an attribute, a closure.",
    "Find what holds the tensors that this line allocates. Keep only the last ones, or move them to the host "
    "or to disk.",
    _CODE["other"],
)
