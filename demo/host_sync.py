"""GD301 host_sync: after every layer the host checks for NaN and infinity, and waits for the GPU each time.

The fix: check only the loss, once in many steps. NaNs propagate, so they reach it.
"""

from __future__ import annotations

from typing import Any

import torch

from common import batch, convolutions, parse, record, trainer

CHECK_EVERY = 50


def check_finite(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
    """Forward hook. The `if` needs the value, so it waits until the GPU has finished all its work."""
    if not output.isfinite().all():
        raise ValueError(f"{module} returned values that are not finite")


def main() -> None:
    arguments = parse(__doc__)
    model = convolutions(arguments.device, depth=24)
    if not arguments.fixed:
        for layer in model.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_hook(check_finite)
    train = trainer(model)
    images, labels = batch(arguments.device, size=16)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        loss = train(images, labels)
        if arguments.fixed and steps % CHECK_EVERY == 0 and not loss.isfinite():
            raise ValueError("the loss is not finite")

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
