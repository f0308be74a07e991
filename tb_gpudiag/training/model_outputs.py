"""Finds where gradients flow back into what a model returned, and runs none of the program's code for it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

MOST_VALUES: Final = 256
"""That are looked at: a loss and logits come first."""

MOST_LEVELS: Final = 8


def first_with_gradient(output: Any, torch: Any) -> Any:
    """Return autograd's node of the first tensor of an output through which gradients flow; None without one.

    Only tensors are looked at, and lists, tuples, dicts and dataclasses of them, as they are in memory: an
    iterator would lose its values, and a lazy mapping would make them. Inputs and parameters have no node.
    """
    # Else subclasses of tensors, and modes, would be asked for each attribute.
    with torch._C.DisableTorchFunction():
        level, left = [output], MOST_VALUES
        for _ in range(MOST_LEVELS):
            following = list[Any]()
            for value in level:
                if issubclass(type(value), torch.Tensor):
                    if value.requires_grad and value.grad_fn is not None:
                        return value.grad_fn
                else:
                    inside = list(islice(_values(value), left))
                    left -= len(inside)
                    following += inside
            level = following
        return None


def _values(value: Any) -> Iterable[Any]:
    """Return what is in a container. A subclass may have an `__iter__` of its own: it is not called."""
    kind = type(value)
    if issubclass(kind, tuple):
        return tuple.__iter__(value)
    if issubclass(kind, list):
        return list.__iter__(value)
    if issubclass(kind, dict):
        return dict.values(value)
    if any("__dataclass_fields__" in vars(one) for one in kind.__mro__):
        try:
            return dict.values(object.__getattribute__(value, "__dict__"))
        except AttributeError:  # one with slots
            return ()
    return ()
