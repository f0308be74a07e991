"""What we do in a training, its program's modes of torch do not see: those that count or change each call."""

from __future__ import annotations

import sys
from contextlib import ExitStack


def unseen() -> ExitStack:
    """Return a context in which no torch function or dispatch mode, nor subclass of tensors, is called."""
    stack = ExitStack()
    torch = sys.modules.get("torch")
    if torch is not None:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableTorchDispatch())
    return stack
