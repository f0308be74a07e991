"""Where jobs were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import torch

MACHINE: Final = "machine.json"


def write_machine(out: Path) -> None:
    """Say in `out` what this machine's GPU is."""
    found = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    (out / MACHINE).write_text(json.dumps(found))


def machine(path: Path) -> str:
    """One line of what write_machine said."""
    found = json.loads(path.read_text())
    return f"torch {found['torch']}, CUDA {found['cuda']}, {found['gpu']}"
