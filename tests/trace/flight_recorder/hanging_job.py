"""Real ranks (gloo) of which the last one does not call the fourth all-reduce:
`python -m tests.trace.flight_recorder.hanging_job FOLDER WORLD`. Each leaves its dump in FOLDER."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TORCH_FR_BUFFER_SIZE"] = "100"

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from tests.patience import HANGS_S

c10d: Any = _distributed_c10d  # its types lack what dumps


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread or process does."""
    end_s = time.monotonic() + HANGS_S
    while not holds():
        if time.monotonic() > end_s:
            os._exit(1)
        time.sleep(0.01)


def train(values: torch.Tensor) -> None:
    """Call what the last rank does not."""
    dist.all_reduce(values)


def main(folder: Path, rank: int, world: int) -> None:
    """Hang as one rank, and write its dump."""
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=world)
    values = torch.ones(1_000)
    for _ in range(3):
        dist.all_reduce(values)
    if rank < world - 1:
        threading.Thread(target=train, args=(values,)).start()
        wait_until(lambda: b'"collective_seq_id":4' in c10d._dump_fr_trace_json())
    else:
        wait_until(lambda: b'"retired":false' not in c10d._dump_fr_trace_json())
    unfinished = folder / f"part.{rank}.writing"
    unfinished.write_bytes(c10d._dump_fr_trace())
    unfinished.rename(folder / f"fr_trace_rank_{rank}")
    wait_until(lambda: all((folder / f"fr_trace_rank_{each}").exists() for each in range(world)))


def run_ranks(folder: Path, world: int) -> int:
    """Run each rank in a fork, which need not import torch again. Return how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(world):
        if not os.fork():
            try:
                main(folder, rank, world)
            finally:
                os._exit(not (folder / f"fr_trace_rank_{rank}").exists())
    failed = sum(os.wait()[1] != 0 for _ in range(world))
    (folder / "store").unlink(missing_ok=True)
    return failed


if __name__ == "__main__":
    sys.exit(run_ranks(Path(sys.argv[1]), int(sys.argv[2])))
