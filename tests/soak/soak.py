"""One soak: disturb, ask, measure, and compare every report with the command's at the end."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tb_gpudiag.errors import TraceError
from tb_gpudiag.report.diagnosis import diagnose_file
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.caches.claims import LEAST_BYTES
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.builder import TraceBuilder
from tests.s3.server import Store
from tests.service.helpers import eventually
from tests.simulator import simulate
from tests.simulator.scenarios import SMALL
from tests.soak.bucket import BucketDisturber, bucket
from tests.soak.disturb import MOST_FILES, Disturber, children
from tests.test_plugin_process import TensorBoard

PAGES = 8
CANCELS = 0.1
CHANGE_EVERY_S = 0.3
# Of a small soak.
SMALL_FILES = 2
SMALL_CHANGE_EVERY_S = 0.1
SAMPLE_EVERY_S = 0.5
# At the end every file is written anew, and analyzed at the lowest priority beside whatever else runs.
SETTLES_WITHIN_S = 600.0
# Name of the bucket among the log directories.
STORE = "store"
# On a busy machine, an analysis of the lowest priority took 30 s. What hangs still ends.
LIMITS = {"GPUDIAG_TIME_LIMIT_S": "120", "GPUDIAG_CACHE_MB": "4"}

# Measured from here on: before, caches and thread pools fill.
WARM_UP = 0.4

# Threads of requests in flight, files that are being read, and an analysis more or less.
ROOM = {"rss_mb": 40.0, "descriptors": 25.0, "threads": 12.0, "processes": 4.0}

ANSWERS = {200, 400, 404}


@dataclass
class Soaked:
    """What a soak saw. samples: what TensorBoard's process had, in order of time."""

    answers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)
    reports: int = 0
    refused: int = 0

    def grown(self) -> list[str]:
        """What grew after the warm-up: its median over the last third against the third before."""
        kept = self.samples[int(WARM_UP * len(self.samples)) :]
        third = max(1, len(kept) // 3)
        found = []
        for name, room in ROOM.items():
            before, after = (_median(part, name) for part in (kept[:third], kept[-third:]))
            if after > before + room:
                found.append(f"{name} grew from {before:.0f} to {after:.0f}")
        return found


def soak(folder: Path, seconds: float, seed: int = 0, small: bool = False) -> Soaked:
    """Soak a new TensorBoard for so long. It is killed at the end, whatever happens.

    small: few files, which change more often, and few pages.
    """
    log = folder / "log"
    log.mkdir(parents=True)
    with bucket() as store:
        return _soak(folder, log, store, seconds, seed, small)


def _soak(folder: Path, log: Path, store: Store | None, seconds: float, seed: int, small: bool) -> Soaked:
    places = {"": str(log)} if store is None else {"": str(log), STORE: store.url("log")}
    spec = ",".join(f"{name}:{path}".lstrip(":") for name, path in places.items())
    tensorboard = TensorBoard(folder, f"--logdir_spec={spec}", **LIMITS)
    found, stop = Soaked(), threading.Event()
    pid = tensorboard.process.pid
    recorded = contents(small=small)
    most = SMALL_FILES if small else MOST_FILES
    local = Disturber(log, folder / "cache", recorded, pid, seed, most)
    disturbers: list[Disturber | BucketDisturber] = [local]
    if store is not None:
        disturbers.append(BucketDisturber(store, recorded, seed))
    count = 2 if small else PAGES
    pages = [threading.Thread(target=visit, args=(tensorboard, found, stop, n)) for n in range(count)]
    try:
        local.record()
        eventually(partial(_answers_a_report, tensorboard, found), "a report is asked for")
        for page in pages:
            page.start()
        every_s = SMALL_CHANGE_EVERY_S if small else CHANGE_EVERY_S
        disturb(disturbers, found, pid, time.monotonic() + seconds, every_s)
        for disturber in disturbers:
            disturber.settle()
            found.changes |= disturber.done
        stop.set()
        for page in pages:
            page.join()
        check_reports(tensorboard, places, found)
    finally:
        stop.set()
        tensorboard.process.kill()
        tensorboard.process.wait()
    return found


def contents(*, small: bool = False) -> list[bytes]:
    """Return files to record. small: two, of which one is long enough for processes to claim it."""
    tiny = TraceBuilder()
    tiny.thread().step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    if small:
        short = simulate(replace(SMALL, steps=4, blocks=12)).bytes("C2")
        return [tiny.bytes(), short + b" " * LEAST_BYTES]
    return [tiny.bytes(), *(simulate(SMALL, seed=seed).bytes("C2") for seed in range(3))]


def disturb(
    disturbers: Sequence[Disturber | BucketDisturber],
    found: Soaked,
    pid: int,
    end_s: float,
    every_s: float = CHANGE_EVERY_S,
) -> None:
    """Change things until then, and note what the process has."""
    pause, change_s, sample_s = threading.Event(), 0.0, 0.0
    while (now_s := time.monotonic()) < end_s:
        if now_s >= change_s:
            for disturber in disturbers:
                with suppress(OSError):  # what it chose has gone meanwhile
                    disturber.step()
            change_s = now_s + every_s
        if now_s >= sample_s:
            found.samples.append(sample(pid))
            sample_s = now_s + SAMPLE_EVERY_S
        pause.wait(0.05)


def sample(pid: int) -> dict[str, float]:
    """Return what a process has."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "processes": len(children(pid)),
    }


def visit(tensorboard: TensorBoard, found: Soaked, stop: threading.Event, number: int) -> None:
    """Ask as an open page does: the list, then the parts of some trace."""
    draw = random.Random(number)
    ids = _listed(_ask(tensorboard, "traces", found))
    while not stop.is_set():
        id_ = draw.choice(ids)
        start_us = draw.uniform(-1e3, 2e4)
        route = draw.choice(
            [
                "traces",
                "status",
                f"report?id={id_}",
                f"timeline?id={id_}&start_us={start_us}&end_us={start_us + draw.uniform(0, 1e4)}&width=1500",
                f"memory?id={id_}",
                f"gap?id={id_}&device=0&gap={draw.randrange(40)}",
                f"find?id={id_}&text=a&limit=20",
                f"event?id={id_}&event={draw.randrange(200)}",
                f"range?id={id_}&start_us={start_us}&end_us={start_us + 1e3}",
                f"operators?id={id_}&group=stack",
                f"callTree?id={id_}&weight=gpu",
                *([f"cancel?id={id_}"] if draw.random() < CANCELS else []),
            ]
        )
        body = _ask(tensorboard, route, found)
        if route == "traces":
            ids = _listed(body)
        stop.wait(draw.uniform(0, 0.1))


def _answers_a_report(tensorboard: TensorBoard, found: Soaked) -> bool:
    """Ask for a report before anything is disturbed, while what is listed still is there."""
    _ask(tensorboard, f"report?id={_listed(_ask(tensorboard, 'traces', found))[0]}", found)
    return found.answers["report 200"] > 0


def _listed(body: Any) -> list[str]:
    """Return the ids of a list of traces; where there are none, one that was never listed."""
    traces = body.get("traces", []) if isinstance(body, dict) else []
    return [trace["id"] for trace in traces] or ["0" * 20]


def _ask(tensorboard: TensorBoard, route: str, found: Soaked) -> Any:
    try:
        with urllib.request.urlopen(
            f"{tensorboard.address}/data/plugin/gpudiag/{route}", timeout=60
        ) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except OSError as error:
        found.problems.append(f"{route}: {error}")
        return None
    found.answers[f"{route.partition('?')[0]} {status}"] += 1
    if status not in ANSWERS:
        found.problems.append(f"{route}: {status} {text[:200]!r}")
    try:
        return json.loads(text)
    except ValueError:
        found.problems.append(f"{route}: not JSON: {text[:200]!r}")
        return None


def check_reports(tensorboard: TensorBoard, places: Mapping[str, str], found: Soaked) -> None:
    """Wait until nothing is undecided, and compare with what the command says."""
    files = _files_in(places)
    there = {file.identity for file in files.values()}
    eventually(partial(_settled, tensorboard, there), "all traces are analyzed", SETTLES_WITHIN_S)
    for trace in _everything(tensorboard):
        file = files[trace["run"], trace["worker"], trace["span"]]
        # A report that was evicted from the full cache, or damaged there, is computed again.
        shown = eventually(partial(_decided, tensorboard, trace["id"]), file.path)
        try:
            own = to_dict(diagnose_file(file))
        except TraceError as error:
            found.refused += 1
            if shown["state"] != "failed":
                found.problems.append(f"{file.path}: the command refuses it: {error.what}")
            continue
        found.reports += 1
        if shown.get("report") != json.loads(json.dumps(own)):
            found.problems.append(
                f"{file.path}: another report than the command's: {shown['state']} {shown.get('error')}"
            )


def _files_in(places: Mapping[str, str]) -> dict[tuple[str, str, str], TraceFile]:
    """Files of log directories by name, by what TensorBoard lists of them."""
    found = [
        replace(file, run=Root(path, name).run(file.run))
        for name, path in places.items()
        for file in find_traces(path).files
    ]
    return {(file.run, file.worker, file.span): file for file in found}


def _settled(tensorboard: TensorBoard, there: Set[str]) -> bool:
    """Ask for all analyses. Return whether they are done, and of the versions that are there: a store is not
    listed all the time."""
    listed = _everything(tensorboard)
    undecided = [trace for trace in listed if trace["state"] not in {"ready", "failed"}]
    for trace in undecided:
        tensorboard.ask(f"report?id={trace['id']}")
    return not undecided and {trace["content"] for trace in listed} == there


def _decided(tensorboard: TensorBoard, id_: str) -> dict[str, Any] | None:
    state = tensorboard.ask(f"report?id={id_}")
    return dict(state) if state["state"] in {"ready", "failed"} else None


def _everything(tensorboard: TensorBoard) -> list[dict[str, Any]]:
    return list(tensorboard.ask("traces")["traces"])


def _median(samples: list[dict[str, float]], name: str) -> float:
    values = sorted(sample[name] for sample in samples)
    return values[len(values) // 2] if values else 0.0
