"""Train and record again and again until stdin ends: `python -m tests.training.recording_loop FOLDER`.

Two workers' worth of recordings: torch's handler writes in place and deletes nothing, ours keeps two.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tb_gpudiag import DiagnosisHandler

STEPS, WIDTH, ROWS, LAYERS = 4, 512, 64, 12
EVERY_S = 4.0
KEPT = 2


def main(folder: Path) -> None:
    """Train until stdin ends. Print the number of recordings."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ours = DiagnosisHandler(folder / "kept", keep=KEPT)
    handlers = [tensorboard_trace_handler(str(folder / "plain")), ours]
    count = 0
    while not ended.is_set():
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=handlers[count % len(handlers)],
            record_shapes=True,
            with_stack=True,
        ) as profiler:
            for _ in range(STEPS + 1):
                optimizer.zero_grad()
                model(torch.rand(ROWS, WIDTH)).square().mean().backward()
                optimizer.step()
                profiler.step()
        count += 1
        ended.wait(EVERY_S)
    ours.close(60)
    print(count)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
