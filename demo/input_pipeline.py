"""GD101 input_pipeline: the training process loads and augments each image itself, and the GPU waits.

The fix: let worker processes load batches ahead of time, into pinned memory.
"""

from __future__ import annotations

from torch import Tensor, rand, randint
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader, Dataset

from common import convolutions, parse, record, trainer


class Images(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = rand(3, 160, 160)
        for _ in range(4):
            image = avg_pool2d(image, 3, stride=1, padding=1)
        return image[:, 16:144, 16:144].contiguous(), randint(10, ())


def main() -> None:
    arguments = parse(__doc__)
    if arguments.fixed:
        loader = DataLoader(Images(), batch_size=64, num_workers=8, pin_memory=True, persistent_workers=True)
    else:
        loader = DataLoader(Images(), batch_size=64)
    train = trainer(convolutions(arguments.device))
    batches = iter(loader)

    def step() -> None:
        images, labels = next(batches)
        train(
            images.to(arguments.device, non_blocking=True),
            labels.to(arguments.device, non_blocking=True),
        )

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
