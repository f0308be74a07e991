"""Train and record on demand: `python -m tests.training.recording_loop FOLDER`.

Each line of stdin names a handler, which records once: torch's writes in place and deletes nothing, ours
keeps two.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tb_gpudiag import DiagnosisHandler

STEPS, WIDTH, ROWS, LAYERS = 4, 512, 64, 12
KEPT = 2


def main(folder: Path) -> None:
    """Train and record until stdin ends."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ours = DiagnosisHandler(folder / "kept", keep=KEPT)
    handlers = {"plain": tensorboard_trace_handler(str(folder / "plain")), "kept": ours}
    for line in sys.stdin:
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=handlers[line.strip()],
            record_shapes=True,
            with_stack=True,
        ) as profiler:
            for _ in range(STEPS + 1):
                optimizer.zero_grad()
                model(torch.rand(ROWS, WIDTH)).square().mean().backward()
                optimizer.step()
                profiler.step()
    ours.close(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
