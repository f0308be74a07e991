"""Unpack what a run has packed, and keep what is worth it: `python -m tests.truth.gpu.keep OUT FOLDER`.

FOLDER gets the files of each job. Below tests/truth/gpu/recorded, each job gets its times, and a digest of
its first recording before and after the fix, unless one is larger than 300 KB.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tb_gpudiag.trace.files.find import find_traces
from tests.truth.gpu.packing import MACHINE, unpack

LARGEST_BYTES: Final = 300_000
KEPT: Final = Path(__file__).with_name("recorded")


def main(out: str, folder: str) -> None:
    unpack(Path(out), Path(folder))
    for line in keep(Path(folder), KEPT):
        print(line)


def keep(folder: Path, kept: Path) -> Iterator[str]:
    """Write times and digests of each job below `kept`. Yields a line for each."""
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / MACHINE, kept / MACHINE)
    for times in sorted(folder.glob("*/times.json")):
        name = times.parent.name
        (kept / name).mkdir(exist_ok=True)
        shutil.copyfile(times, kept / name / times.name)
        sizes = {side: _digested(times.parent, kept / name, side) for side in ("before", "after")}
        yield f"{name}: " + ", ".join(f"{side} {said}" for side, said in sizes.items())


def _digested(job: Path, kept: Path, side: str) -> str:
    """Write a digest of a side's first recording, and say how large it is."""
    folder = job / f"{side}_first" / "plain"
    if not (folder.is_dir() and (files := find_traces(str(folder)).files)):
        return "not recorded"
    content = to_bytes(digest_file(files[0])[1])
    if len(content) > LARGEST_BYTES:
        return f"too large ({len(content):,} bytes)"
    (kept / f"{side}{SUFFIX}").write_bytes(content)
    return f"{len(content):,} bytes"


if __name__ == "__main__":
    main(*sys.argv[1:])
