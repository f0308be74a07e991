"""`python -m tests.simulator OUTDIR`: writes one run folder per scenario, each with one simulated trace."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.simulator.scenarios import scenarios, simulate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument(
        "outdir", type=Path, help="created if needed; run folders of the same names are overwritten"
    )
    parser.add_argument("--only", metavar="NAME", choices=sorted(scenarios()), action="append", default=[])
    parser.add_argument("--severity", type=float, default=1.0, help="scales the planted faults (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.only or scenarios():
        run = simulate(name, severity=arguments.severity, seed=arguments.seed)
        folder = arguments.outdir / name
        for old in folder.glob("simulated_1.*.pt.trace.json.gz"):
            old.unlink()
        run.write(folder)
        busy = run.truth.busy_ns / run.truth.window_ns
        print(f"{name}: {run.truth.window_ns / 1e6:.1f} ms, GPU busy {busy:.0%} (simulated)")


if __name__ == "__main__":
    main()
