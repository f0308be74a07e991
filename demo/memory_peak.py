"""GD402 memory_peak: the activations of a batch do not fit next to the weights, and an allocation fails.

The fix: smaller batches, more often.
"""

from __future__ import annotations

import torch
from torch import nn

from common import batch, convolutions, needs_gpu, parse, snapshot, trainer

LIMIT_BYTES = 4 * 2**30
"""As if the GPU were a small one."""


def main() -> None:
    arguments = parse(__doc__)
    needs_gpu(arguments, "there is no GPU memory to run out of")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / total)
    train = trainer(nn.Sequential(convolutions(arguments.device, depth=16)))
    pieces = 8 if arguments.fixed else 1
    images, labels = batch(arguments.device, size=128)

    def step() -> None:
        for some, of_some in zip(images.chunk(pieces), labels.chunk(pieces), strict=True):
            train(some, of_some)

    snapshot(step, arguments.logdir)


if __name__ == "__main__":
    main()
