"""Where jobs were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.truth.gpu import device
from tests.truth.gpu.packing import MACHINE


def write_machine(out: Path) -> None:
    """Say in `out` what this machine's GPU is."""
    found = {"gpu": device.name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    (out / MACHINE).write_text(json.dumps(found))


def machine(path: Path) -> str:
    """One line of what write_machine said."""
    found = json.loads(path.read_text())
    return f"torch {found['torch']}, CUDA {found['cuda']}, {found['gpu']}"
