"""GD102 host_bound: every step loops over the samples in Python while the GPU has nothing to do.

The fix: do it once, before training, and keep the result.
"""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from common import batch, convolutions, parse, record, trainer


def class_weights(labels: list[int]) -> list[float]:
    """A plain Python loop, as tokenizers, samplers and target builders often are."""
    counts = Counter(labels)
    weights = []
    for _ in range(2_000):
        weights = [len(labels) / counts[label] for label in labels]
    return weights


def main() -> None:
    arguments = parse(__doc__)
    train = trainer(convolutions(arguments.device, depth=2))
    images, labels = batch(arguments.device)
    labels_on_host: list[int] = labels.tolist()
    once = class_weights(labels_on_host)

    def step() -> Tensor:
        weights = once if arguments.fixed else class_weights(labels_on_host)
        return train(images * weights[0], labels)

    record(step, arguments.logdir)


if __name__ == "__main__":
    main()
