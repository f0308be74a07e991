"""Train and record until stdin ends: `python -m tests.soak.training_loop FOLDER CONTENTS EVERY_S KEEP`.

Recordings have the bytes of the files in CONTENTS, at random. Prints as JSON what the handler passed on.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tb_gpudiag import DiagnosisHandler
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.training import helper
from tests.soak.team import without_place
from tests.training.stage import FakeProfiler


def main(folder: Path, contents: list[bytes], every_s: float, keep: int) -> None:
    """Train until stdin ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    distinct: dict[str, object] = {}
    counts: Counter[str] = Counter()

    def note(report: pb.Report) -> None:
        found = without_place(to_dict(report))
        distinct.setdefault(hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest(), found)
        counts["reports"] += 1

    # On a busy machine, a helper in the background would never have its turn.
    helper.NICE = 0
    made = DiagnosisHandler(folder, on_diagnosis=note, keep=keep)
    draw, weights = random.Random(0), np.ones((64, 64))
    slowest_s, next_s = 0.0, 0.0
    while not ended.is_set():
        weights = np.tanh(weights @ weights)
        time.sleep(0.005)
        if time.monotonic() >= next_s:
            profiler = FakeProfiler(draw.choice(contents))
            began_s = time.monotonic()
            made(profiler)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            counts["recordings"] += 1
            next_s = began_s + every_s
    made.close(120)
    counts["skipped"] = made.skipped
    counts["slowest recording in ms"] = round(slowest_s * 1e3)
    print(json.dumps({"counts": counts, "reports": list(distinct.values())}))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        [path.read_bytes() for path in sorted(Path(sys.argv[2]).iterdir())],
        float(sys.argv[3]),
        int(sys.argv[4]),
    )
