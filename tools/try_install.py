"""Try the gpudiag that this Python has installed: `python tools/try_install.py [--plain]`.

It diagnoses the traces of `gpudiag demo`, and checks that the modules are compiled, or with --plain that they
are not.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

sys.path[:] = [place for place in sys.path if place not in ("", str(Path(__file__).parent))]

EXPECTED = {
    "simulated/input_pipeline": "GD101",
    "simulated/host_sync": "GD301",
    "recorded_on_a_cpu/input_pipeline": "GD101",
    "recorded_on_a_cpu/memory_leak": "GD405",
}
"""First finding by run."""


def main() -> None:
    package = importlib.util.find_spec("tb_gpudiag")
    if package is None or package.origin is None:
        sys.exit("tb_gpudiag is not installed")
    folder = Path(package.origin).parent
    compiled = importlib.util.find_spec("tb_gpudiag.trace.kineto._scan") is not None
    if compiled == ("--plain" in sys.argv[1:]):
        sys.exit(f"compiled modules: {compiled}")
    (point,) = importlib.metadata.entry_points(group="tensorboard_plugins", name="gpudiag")
    point.load()
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", str(folder / "demo_log"), "--format", "json"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=folder.parent)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    found = {
        report["trace"]["run"]: report["findings"][0]["rule"]
        for report in json.loads(done.stdout)["reports"]
        if report["findings"]
    }
    if found != EXPECTED:
        sys.exit(f"first findings: {found}, not {EXPECTED}")
    version = importlib.metadata.version("tb-gpudiag")
    python = sys.version.split()[0]
    print(f"tb-gpudiag {version}, Python {python}, compiled: {compiled}: the right first findings")


if __name__ == "__main__":
    main()
