"""GD401 memory_leak: a list keeps validation losses together with their graphs (GD405 on a CPU).

The fix: disable gradients for validation, and keep numbers instead of tensors.
"""

from __future__ import annotations

import torch
from torch import nn

from common import batch, convolutions, parse, record, snapshot, trainer


def main() -> None:
    arguments = parse(__doc__)
    model = convolutions(arguments.device)
    train = trainer(model)
    images, labels = batch(arguments.device, size=16, side=64)
    losses: list[torch.Tensor | float] = []

    def validate() -> None:
        loss = nn.functional.cross_entropy(model(images), labels)
        losses.append(loss.item() if arguments.fixed else loss)

    def step() -> None:
        train(images, labels)
        with torch.set_grad_enabled(not arguments.fixed):
            validate()

    record(step, arguments.logdir)
    if arguments.device != "cpu":
        snapshot(step, arguments.logdir)


if __name__ == "__main__":
    main()
