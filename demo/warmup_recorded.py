"""GD902 warmup_recorded: the recording includes the first steps, and all one-time work in them.

The fix: skip some steps, and let the profiler warm up before it records.
"""

from __future__ import annotations

from common import batch, convolutions, parse, record, trainer


def main() -> None:
    arguments = parse(__doc__)
    train = trainer(convolutions(arguments.device))
    images, labels = batch(arguments.device)
    record(lambda: train(images, labels), arguments.logdir, skip_warm_up=not arguments.fixed)


if __name__ == "__main__":
    main()
