"""GD902 warmup_recorded: the first steps are recorded, with everything in them that happens only once.

The fix: let some steps pass and the profiler warm up before it records.
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
