"""GD104 compilation_in_step: no two batches have the same size, and torch.compile recompiles for each.

The fix: pad every batch to one size. (On a CPU, torch.compile needs a C++ compiler.)
"""

from __future__ import annotations

import torch

from common import batch, convolutions, parse, record

LARGEST = 64


def main() -> None:
    arguments = parse(__doc__)
    torch._dynamo.config.recompile_limit = 1_000  # after a few, it gives up and runs without compiling
    model = torch.compile(convolutions(arguments.device, depth=1), dynamic=False)
    images, _ = batch(arguments.device, size=LARGEST)
    sizes = iter(range(LARGEST - 32, LARGEST))

    @torch.no_grad()
    def step() -> None:
        size = next(sizes)
        ragged = images[:size]
        if arguments.fixed:
            ragged = torch.nn.functional.pad(ragged, (0, 0, 0, 0, 0, 0, 0, LARGEST - size))
        model(ragged)

    record(step, arguments.logdir, active=2)  # a compilation with its stacks is a large trace


if __name__ == "__main__":
    main()
