"""GD901 no_steps: `profiler.step()` is never called.

The fix: use a schedule, and call `profiler.step()` after every step.
"""

from __future__ import annotations

from common import batch, convolutions, parse, record, trainer


def main() -> None:
    arguments = parse(__doc__)
    train = trainer(convolutions(arguments.device, depth=2))
    images, labels = batch(arguments.device, size=16)
    record(lambda: train(images, labels), arguments.logdir, mark_steps=arguments.fixed)


if __name__ == "__main__":
    main()
