"""Guards of torch.compile: what of the program's state a failed one is about, by torch's words for it."""

from __future__ import annotations

from enum import IntEnum

from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, lazy_re


class GuardKind(IntEnum):
    """What changed."""

    SIZE = 0  # of a tensor, or its strides or number of dimensions
    DTYPE = 1  # or device, layout, requires_grad of a tensor
    MODE = 2  # of gradients, autocast, determinism, threads
    VALUE = 3  # of a Python number, string or length
    OBJECT = 4  # another object or type
    OTHER = 5


_SIGNS = (
    (GuardKind.SIZE, r"(size|stride|rank) mismatch|\.(size|stride)\(\)|_dynamic_indices|\.shape\b"),
    (GuardKind.DTYPE, r"(dtype|device|requires_grad|dispatch key set) mismatch|DispatchKeySet"),
    (GuardKind.MODE, r"GLOBAL_STATE|grad_mode|autocast|utils_device|torch_function"),
    (GuardKind.OBJECT, r"___check_(obj|type)_id|\bis (not )?|expected type|hasattr|___dict_"),
    (GuardKind.VALUE, r"==|!=|<|>|\blen\(|isnan"),
)
_KINDS = [(kind, lazy_re(signs)) for kind, signs in _SIGNS]
_NUMBERS = lazy_re(r"\d+(\.\d+)?")


def guard_kind(text: str) -> GuardKind:
    """Return what a failed guard is about."""
    text = text[:LONGEST_MATCHED]
    return next((kind for kind, signs in _KINDS if signs.search(text)), GuardKind.OTHER)


def without_numbers(text: str) -> str:
    """Return what guards have in common that failed for other numbers."""
    return _NUMBERS.sub("#", text)
