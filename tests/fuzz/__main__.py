"""`python -m tests.fuzz TARGET [FILE…]`: fuzz a target, or run it on files. See the package."""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
FOUND = Path("build/fuzz")
MOST_BYTES = 16_384
MOST_SECONDS_EACH = 20  # for one input: longer is a hang


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("files", nargs="*", type=Path, help="run the target on these, and do not fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    if not arguments.files:
        _fuzz(arguments.target, arguments.seconds)
        return
    from tests.fuzz.targets import TARGETS

    for file in arguments.files:
        TARGETS[arguments.target](file.read_bytes())


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz with coverage of the package's own code. The process ends here."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("fuzz: atheris is not installed (pip install atheris; there are wheels for Linux)")
    with atheris.instrument_imports(include=["tb_gpudiag"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.mutate import mutated

    def mutate(content: bytes, most_bytes: int, seed: int) -> bytes:
        draw = random.Random(seed)
        changed = atheris.Mutate(content, most_bytes) if draw.random() < 0.3 else mutated(content, seed)
        return bytes(changed[:most_bytes])

    found, growing = FOUND / name, FOUND / f"{name}-corpus"
    for folder in (found, growing):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={MOST_SECONDS_EACH}",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    command = [sys.argv[0], *options, str(growing), str(CORPUS / name)]
    atheris.Setup(command, TARGETS[name], custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
