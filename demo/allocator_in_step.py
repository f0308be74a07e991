"""GD103 allocator_in_step: every step empties the cache, so the driver has to allocate all memory again.

The fix: do not call `empty_cache()` in the loop.
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
