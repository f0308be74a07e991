"""GD301 host_sync: every step reads every gradient's norm with `.item()`, and waits for the GPU each time.

The fix: keep the norms on the GPU, and read them together once in many steps.
"""

from __future__ import annotations

import torch

from common import batch, convolutions, parse, record, trainer

LOG_EVERY = 50


def log_gradients(model: torch.nn.Module) -> dict[str, float]:
    return {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}


def gradient_norms(model: torch.nn.Module) -> torch.Tensor:
    """Shape (parameters,), on the model's device: nothing waits."""
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None])


def main() -> None:
    arguments = parse(__doc__)
    model = convolutions(arguments.device, depth=24, width=32)
    train = trainer(model)
    images, labels = batch(arguments.device, size=16)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        train(images, labels)
        if not arguments.fixed:
            log_gradients(model)
        elif steps % LOG_EVERY == 0:
            gradient_norms(model).tolist()

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
