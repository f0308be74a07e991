"""What else is around the training: profilers and modes of torch that the program has entered.

torch has one profiling session a process: a second profiler takes it, and if the first one then goes on, the
process may crash. A profiler that waits in its schedule has no session, and torch does not say that there is
one. So the methods with which a profiler is entered and left are watched while a step clock runs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final


def unseen() -> ExitStack:
    """Return a context in which no torch function or dispatch mode, nor subclass of tensors, is called."""
    stack = ExitStack()
    torch = sys.modules.get("torch")
    if torch is not None:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableTorchDispatch())
    return stack


Before = Callable[[Any], None]
"""Called with a profiler before it is entered or steps, on its thread."""

_ENTER: Final = (
    (
        "torch.profiler",
        "profile",
        ("start", "step"),
    ),  # one that was entered before this watch shows with a step
    ("torch.profiler", "_KinetoProfile", ("start", "prepare_trace", "start_trace")),
    ("torch.autograd.profiler", "profile", ("__enter__",)),
    ("torch.autograd.profiler", "emit_nvtx", ("__enter__",)),
    ("torch.autograd.profiler", "emit_itt", ("__enter__",)),
)
_LEAVE: Final = (
    ("torch.profiler", "profile", ("stop",)),
    ("torch.profiler", "_KinetoProfile", ("stop",)),
    ("torch.autograd.profiler", "profile", ("__exit__",)),
    ("torch.autograd.profiler", "emit_nvtx", ("__exit__",)),
    ("torch.autograd.profiler", "emit_itt", ("__exit__",)),
)

_entered: weakref.WeakSet[Any] = weakref.WeakSet()
_watching: list[Before] = []
_undo = contextlib.ExitStack()


def watch(before: Before) -> None:
    """Have `before` called from now on. Raises whatever importing torch.profiler raises."""
    if not _watching:
        for places, wrapper in ((_ENTER, _entering), (_LEAVE, _leaving)):
            for module, kind, names in places:
                owner = getattr(importlib.import_module(module), kind, None)
                for name in names:
                    if name in getattr(owner, "__dict__", ()):
                        _replace(owner, name, wrapper)
    _watching.append(before)


def unwatch(before: Before) -> None:
    """Call it no more. The last one to go leaves torch as it was."""
    if before in _watching:
        _watching.remove(before)
        if not _watching:
            _undo.close()
            _entered.clear()


def is_any_entered() -> bool:
    """Return whether a profiler is entered that began or stepped since the watch began, or one records."""
    import torch

    records = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)  # on any thread
    return bool(_entered) or records or torch.autograd._profiler_enabled()


def forget(profiler: Any) -> None:
    """Take a profiler for left."""
    _entered.discard(profiler)


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = vars(owner)[name]
    watched = functools.wraps(original)(wrapper(original))
    setattr(owner, name, watched)

    def put_back() -> None:
        if vars(owner).get(name) is watched:  # else the program has replaced it, too
            setattr(owner, name, original)

    _undo.callback(put_back)


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    def enter(profiler: Any, *values: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            for before in [*_watching]:
                before(profiler)
            _entered.add(profiler)
        return original(profiler, *values, **named)

    return enter


def _leaving(original: Callable[..., Any]) -> Callable[..., Any]:
    def leave(profiler: Any, *values: Any, **named: Any) -> Any:
        try:
            return original(profiler, *values, **named)
        finally:
            _entered.discard(profiler)

    return leave
