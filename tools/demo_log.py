"""Write the traces of `gpudiag demo`: `python -m tools.demo_log`. Needs torch, and takes half a minute.

Simulated GPU jobs, and small trainings that torch records on this machine's CPU with the scripts of demo/.
What names the machine is left out.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.simulator.scenarios import simulate

ROOT = Path(__file__).resolve().parents[1]
DEMO_LOG = ROOT / "tb_gpudiag" / "demo_log"

SIMULATED = ("input_pipeline", "input_pipeline_fixed", "host_sync")
RECORDED = {"input_pipeline": "cpu", "memory_leak": "memory_leak"}
"""Script by run."""

_OF_THE_MACHINE = re.compile(rb'("host_name": |"traceName": )"[^"]*"')


def main() -> None:
    shutil.rmtree(DEMO_LOG, ignore_errors=True)
    for name in SIMULATED:
        with tempfile.TemporaryDirectory() as folder:
            simulate(name).write(Path(folder))
            (made,) = Path(folder).iterdir()
            _write(made, DEMO_LOG / "simulated" / name / made.name)
    for run, script in RECORDED.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, f"demo/{script}.py", "--logdir", folder, "--device", "cpu"]
            subprocess.run(command, cwd=ROOT, check=True)
            (made,) = Path(folder).rglob("*.pt.trace.json.gz")
            span = made.name.split(".")[1]
            _write(made, DEMO_LOG / "recorded_on_a_cpu" / run / f"recorded.{span}.pt.trace.json.gz")


def _write(source: Path, target: Path) -> None:
    """Copy a packed trace as small as it gets, the same whenever it is done."""
    text = _OF_THE_MACHINE.sub(rb'\1"demo"', gzip.decompress(source.read_bytes()))
    target.parent.mkdir(parents=True)
    target.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
