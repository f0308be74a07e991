"""`python -m tests.fuzz TARGET [FILE…]`: fuzz a target, or run it on files. See the package."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import random
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.mutate import made

CORPUS = Path(__file__).with_name("corpus")
FOUND = Path(__file__).resolve().parents[2] / "build" / "fuzz"
MOST_BYTES = 16_384
MOST_SECONDS_EACH = 20  # for one input: longer is a hang


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("files", nargs="*", type=Path, help="run the target on these, and do not fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--blind", action="store_true", help="without coverage, so without atheris, and faster"
    )
    parser.add_argument("--seed", type=int, help="of the first input, with --blind; else the time decides")
    arguments = parser.parse_args()
    if arguments.files:
        from tests.fuzz.targets import TARGETS

        for file in arguments.files:
            TARGETS[arguments.target](file.read_bytes())
    elif arguments.blind:
        first = time.time_ns() if arguments.seed is None else arguments.seed
        sys.exit(_fuzz_blindly(arguments.target, arguments.seconds, first))
    else:
        _fuzz(arguments.target, arguments.seconds)


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz with coverage of the package's own code. The process ends here."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("fuzz: atheris is not installed (pip install atheris; there are wheels for Linux)")
    with atheris.instrument_imports(include=["tb_gpudiag"]):
        from tests.fuzz.targets import TARGETS

    def mutate(content: bytes, most_bytes: int, seed: int) -> bytes:
        draw = random.Random(seed)
        changed = atheris.Mutate(content, most_bytes) if draw.random() < 0.3 else made(name, content, seed)
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


def _fuzz_blindly(name: str, seconds: int, first: int) -> int:
    """Run the target on one input after the other, and keep those that fail. Return 1 if one did."""
    from tests.fuzz.targets import TARGETS

    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    running = open(found / "running", "w+b", buffering=0)  # noqa: SIM115  (what is left if a sanitizer ends this)
    signal.signal(signal.SIGALRM, _hangs)
    TARGETS[name](next(iter(_inputs(name, first))))  # what a target makes once, such as a server, takes long
    begin, count, failures = time.monotonic(), 0, set()
    for content in _inputs(name, first):
        if time.monotonic() > begin + seconds:
            break
        os.pwrite(running.fileno(), content, 0)  # a file opened anew each time takes longer than most inputs
        running.truncate(len(content))
        count += 1
        try:
            signal.alarm(MOST_SECONDS_EACH)
            TARGETS[name](content)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            failure = (type(error).__name__, where.filename, where.lineno)
            if failure not in failures:
                (found / f"failed-{zlib.crc32(content):08x}").write_bytes(content)
                traceback.print_exc()
            failures.add(failure)
        finally:
            signal.alarm(0)
    running.close()
    os.unlink(running.name)
    print(f"fuzz: {name}: {count:,} inputs from seed {first}, {len(failures)} kinds of failures")
    return 1 if failures else 0


def _inputs(name: str, first: int) -> Iterator[bytes]:
    corpus = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    for seed in itertools.count(first):
        yield made(name, random.Random(seed).choice(corpus), seed)[:MOST_BYTES]


def _hangs(*_: object) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS_EACH} s")


if __name__ == "__main__":
    main()
