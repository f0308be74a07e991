"""GD103 allocator_in_step: the cache is emptied in every step, so the driver has to give all memory again.

The fix: leave the caching allocator its memory.
"""

from __future__ import annotations

import torch

from common import batch, convolutions, needs_gpu, parse, record, trainer


def main() -> None:
    arguments = parse(__doc__)
    needs_gpu(arguments, "PyTorch keeps no cache of the CPU's memory")
    train = trainer(convolutions(arguments.device))
    images, labels = batch(arguments.device)

    def step() -> None:
        train(images, labels)
        if not arguments.fixed:
            torch.cuda.empty_cache()

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
