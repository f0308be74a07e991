"""GD302 pageable_copies: large batches are copied from pageable memory, and everything waits for the copy.

The fix: use pinned memory, and copy the next batch on its own stream during training.
"""

from __future__ import annotations

import torch

from common import batch, convolutions, needs_gpu, parse, record, trainer


def main() -> None:
    arguments = parse(__doc__)
    needs_gpu(arguments, "there is nothing to copy to")
    train = trainer(convolutions(arguments.device, depth=2))
    images, labels = batch("cpu", size=128, side=192)
    if arguments.fixed:
        images, labels = images.pin_memory(), labels.pin_memory()
    stream = torch.cuda.Stream()

    def copied() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.stream(stream):
            return images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)

    ahead = copied() if arguments.fixed else None

    def step() -> None:
        nonlocal ahead
        if ahead is None:
            train(images.to("cuda"), labels.to("cuda"))
            return
        torch.cuda.current_stream().wait_stream(stream)
        for tensor in ahead:
            tensor.record_stream(torch.cuda.current_stream())
        this, ahead = ahead, copied()
        train(*this)

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
