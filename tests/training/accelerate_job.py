"""One rank of the loop for Accelerate in docs/training.md, on the CPU: `python accelerate_job.py`.

It writes below the working directory. Its log goes to stdout.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import torch

import tb_gpudiag
from tb_gpudiag.training import helper

helper.NICE = 0  # on a busy machine, a low priority would stall the tests

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
WIDTH, BATCHES = 16, 30


def loop() -> str:
    """The code of the page, which soon records."""
    blocks = re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code: str = next(block for block in blocks if "accelerate" in block)
    assert '"wait": 500' in code
    return code.replace('"wait": 500', '"wait": 1, "repeat": 1').replace("close()", "close(100)")


def loss_of(model: torch.nn.Module, batch: list[torch.Tensor]) -> Any:
    return model(batch[0]).square().mean()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    model = torch.nn.Linear(WIDTH, WIDTH)
    names = {
        "tb_gpudiag": tb_gpudiag,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(BATCHES, WIDTH))),
        "loss_of": loss_of,
    }
    exec(loop(), names)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
