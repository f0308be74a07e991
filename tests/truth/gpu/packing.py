"""The few files in which the results of a run on a lent GPU come back."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

PART_BYTES: Final = 15 << 20
MOST_PARTS: Final = 6
"""A machine that is lent gives a few files of a certain size back."""

_SAFELY: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.10 and 3.11 have it since 3.10.12 and 3.11.4, and Debian 12 has 3.11.2."""

MACHINE: Final = "machine.json"
"""Says where the jobs beside it were recorded."""


@dataclass
class Parts:
    """The tar files that results go into."""

    out: Path
    lock: Lock = field(default_factory=Lock)

    def add(self, folder: Path) -> str:
        """Put a job's files into a part with room, the large ones of stacks only if they fit. Returns what
        was left out."""
        files = sorted((path for path in folder.rglob("*") if path.is_file()), key=_last_if_stacks)
        left_out = []
        with self.lock:
            for path in files:
                if not self._put(path, folder.parent):
                    left_out.append(path.relative_to(folder).as_posix())
        return f"; no room for {', '.join(left_out)}" if left_out else ""

    def _put(self, path: Path, root: Path) -> bool:
        size = path.stat().st_size + 2 * tarfile.BLOCKSIZE
        for number in range(MOST_PARTS):
            part = self.out / f"part{number}.tar"
            used = part.stat().st_size if part.exists() else 0
            if used + size + tarfile.RECORDSIZE <= PART_BYTES:
                with tarfile.open(part, "a") as file:
                    file.add(path, path.relative_to(root).as_posix())
                return True
        return False


def _last_if_stacks(path: Path) -> tuple[bool, str]:
    return "stacks" in path.parts, path.as_posix()


def unpack(out: Path, folder: Path) -> None:
    """Put what a run has packed into a folder for each job."""
    for part in sorted(out.glob("part*.tar")):
        with tarfile.open(part) as file:
            file.extractall(folder, **_SAFELY)
    shutil.copyfile(out / MACHINE, folder / MACHINE)
