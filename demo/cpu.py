"""A small real training on the CPU, recorded with torch.profiler by `make demo`.

Its DataLoader has no workers (two with --fixed), so part of every step is loading.
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

from common import Convolutions, parse, record, trainer


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 1_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return blur(torch.rand(3, 64, 64)), torch.randint(10, ())


def blur(image: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        image = torch.nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
    return image


def main() -> None:
    arguments = parse(__doc__)
    torch.manual_seed(0)
    train = trainer(Convolutions(width=8, depth=2))
    batches = iter(DataLoader(Images(), batch_size=8, num_workers=2 if arguments.fixed else 0))
    record(lambda: train(*next(batches)), arguments.logdir)


if __name__ == "__main__":
    main()
