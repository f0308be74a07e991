"""A job that compiles again, breaks graphs and misses caches, for reasons that it knows:
`TORCH_TRACE=FOLDER python compile_job.py FOLDER BACKEND [NAME...]`, of these functions only.

It records to FOLDER, and writes FOLDER/known.json: the time of each call, by a stopwatch.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

warnings.filterwarnings("ignore")

SCALE = 2.0
STEPS = 7
# Each of these changes what one function depends on, before this step.
CHANGES = {"global": 3, "closure": 4, "attribute": 5, "dtype": 2, "gradients": 3, "shape": 4}


class Scaled(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.factor  # attribute


def uses_global(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * SCALE  # global


def closure() -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[str], None]]:
    mode = "cosine"

    def set_mode(new: str) -> None:
        nonlocal mode
        mode = new

    def uses_closure(x: torch.Tensor) -> torch.Tensor:
        return x.cos() if mode == "cosine" else x.tan()  # closure

    return uses_closure, set_mode


def takes_shapes(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def takes_dtypes(x: torch.Tensor) -> torch.Tensor:
    return x.exp() + 1


def takes_gradients(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() + 1


def prints(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("a print")  # print
    return y * 2


def decides(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    if y.sum().item() > 0:  # item
        return y + 1
    return y - 1


def asks(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    os.getpid()  # unsupported
    return y + 3


def timed_us(call: Callable[[torch.Tensor], torch.Tensor], name: str, step: int) -> float:
    """Call it with what this step has for it."""
    changed = step >= CHANGES.get(name, STEPS)
    dtype = torch.float64 if changed and name == "dtype" else torch.float32
    x = torch.ones(9 if changed and name == "shape" else 8, 16, dtype=dtype)
    with torch.set_grad_enabled(changed and name == "gradients"):
        begin = time.perf_counter_ns()
        call(x)
        return (time.perf_counter_ns() - begin) / 1e3


def main(folder: Path, backend: str, *names: str) -> None:
    """Run and record all steps."""
    global SCALE
    torch.set_num_threads(1)
    uses_closure, set_mode = closure()
    model = Scaled()
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "attribute": model,
        "global": uses_global,
        "closure": uses_closure,
        "shape": takes_shapes,
        "dtype": takes_dtypes,
        "gradients": takes_gradients,
        "print": prints,
        "item": decides,
        "unsupported": asks,
    }
    compiled = {
        name: torch.compile(f, backend=backend, dynamic=False)
        for name, f in functions.items()
        if not names or name in names
    }
    known: list[dict[str, object]] = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS - 1),
        on_trace_ready=tensorboard_trace_handler(str(folder)),
    ) as profiler:
        for step in range(STEPS):
            if step == CHANGES["global"]:
                SCALE = 3.0
            if step == CHANGES["closure"]:
                set_mode("tangent")
            if step == CHANGES["attribute"]:
                model.factor = 2.5
            for name, call in compiled.items():
                known.append({"name": name, "step": step, "us": timed_us(call, name, step)})
            profiler.step()
    (folder / "known.json").write_text(json.dumps(known))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
