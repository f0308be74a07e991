"""`python -m tests.fuzz TARGET [FILE…]`: fuzz a target, or run it on files. See the package."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.inputs import CORPUS, input_of, made

FOUND = Path(__file__).resolve().parents[2] / "build" / "fuzz"
MOST_BYTES = 1 << 20
MOST_SECONDS_EACH = 20
"""Of CPU time for one input: longer is a hang. A busy machine does not count."""
MOST_MEMORY_KB = 1 << 20
"""That one input may add to the process's largest size. Its own size is the limit where readers say so."""
PROGRESS_S = 30
COLLECTED_EVERY = 1_000
"""Inputs between two garbage collections, which look through what no input leaves behind."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("files", nargs="*", type=Path, help="run the target on these, and do not fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--blind", action="store_true", help="without coverage, so without atheris, and faster"
    )
    parser.add_argument("--seed", type=int, help="of the first input, with --blind; else the time decides")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="at most so many, with --blind")
    arguments = parser.parse_args()
    if arguments.files:
        from tests.fuzz.targets import TARGETS

        for file in arguments.files:
            TARGETS[arguments.target](file.read_bytes())
    elif arguments.blind:
        first = time.time_ns() if arguments.seed is None else arguments.seed
        sys.exit(_fuzz_blindly(arguments.target, arguments.seconds, first, arguments.inputs))
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
    corpora = [str(folder) for folder in (growing, CORPUS / name) if folder.is_dir()]
    command = [sys.argv[0], *options, *corpora]
    atheris.Setup(command, TARGETS[name], custom_mutator=mutate)
    atheris.Fuzz()


def _fuzz_blindly(name: str, seconds: int, first: int, most: int) -> int:
    """Run the target on the input of one seed after the other, and keep those that fail. Return 1 if one did.

    If a sanitizer ends the process, the file `running-FIRST` has the seed. Several may run beside each other.
    """
    from tests.fuzz.targets import TARGETS

    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    running = open(found / f"running-{first}", "wb", buffering=0)  # noqa: SIM115  (opening it for each takes long)
    signal.signal(signal.SIGPROF, _hangs)
    warnings.simplefilter("error", RuntimeWarning)  # numbers that do not fit
    target = TARGETS[name]
    target(input_of(name, first))  # what a target makes once, such as a server, takes long
    gc.freeze()  # what is imported is not looked through again and again
    gc.disable()
    begin = shown = time.monotonic()
    begin_cpu, count, failures = time.process_time(), 0, set[tuple[str, str, int | None]]()
    largest_kb = _largest_kb()

    def tell() -> None:
        took, took_cpu = time.monotonic() - begin, time.process_time() - begin_cpu
        print(
            f"fuzz: {name}: {count:,} inputs from seed {first} in {took:,.0f} s, "
            f"{count / took_cpu:,.0f} a second of CPU time, {len(failures)} kinds of failures",
            flush=True,
        )

    while count < most and (now := time.monotonic()) < begin + seconds:
        if now > shown + PROGRESS_S:
            shown = now
            tell()
        if count % COLLECTED_EVERY == 0:
            gc.collect()
        seed = first + count
        os.pwrite(running.fileno(), b"%d" % seed, 0)
        content = input_of(name, seed)
        count += 1
        try:
            largest_kb = _run(target, content, largest_kb)
        except Exception as error:
            largest_kb = _largest_kb()
            where = traceback.extract_tb(error.__traceback__)[-1]
            failure = (type(error).__name__, where.filename, where.lineno)
            if failure not in failures:
                (found / f"failed-{seed}").write_bytes(content)
                traceback.print_exc()
            failures.add(failure)
    running.close()
    os.unlink(running.name)
    tell()
    return 1 if failures else 0


def _run(target: Callable[[bytes], None], content: bytes, before_kb: int) -> int:
    """Run a target on one input, within limits on time and memory. Return the process's largest size."""
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS_EACH)
    # Code that never returns to Python is ended with the process. Its input is left behind.
    signal.setitimer(signal.ITIMER_VIRTUAL, 3 * MOST_SECONDS_EACH)
    try:
        target(content)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    after_kb = _largest_kb()
    assert after_kb < before_kb + MOST_MEMORY_KB, "it takes more memory than any small file may"
    return after_kb


def _largest_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _hangs(*_: object) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS_EACH} s")


if __name__ == "__main__":
    main()
