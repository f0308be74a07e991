"""Two processes on one shared cache do not analyze the same trace at once, and never wait for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.service.caches import claims
from tb_gpudiag.service.caches.claims import Claim, content_key, known_or_claimed
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.service.helpers import eventually
from tests.service.test_shared_cache import KEY, MARK, put
from tests.test_plugin_process import REPOSITORY, TensorBoard

# Claims the key, says so, and lives on. With "hang", it does not touch the claim.
OWNER = """
import sys, time
from pathlib import Path
from tb_gpudiag.service.caches import claims
from tb_gpudiag.service.caches.shared_cache import SharedCache

claims.TOUCH_EVERY_S = 1e9 if sys.argv[3] == "hang" else 0.05
assert not claims.Claim(SharedCache(Path(sys.argv[1]), 1 << 20), sys.argv[2]).is_anothers()
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(claims, "ABANDONED_AFTER_S", 1.0)


@contextmanager
def owner(team: Path, how: str = "touch") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, str(team), KEY, how]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=worker_environment(), cwd=REPOSITORY
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(team: Path, stages: list[str] | None = None) -> str | None:
    """Look for the entry as an analysis does. The claim is kept."""
    shared = SharedCache(team, 1 << 20)
    told = [] if stages is None else stages
    return known_or_claimed(
        lambda: "found" if shared.find(KEY, MARK) else None,
        Claim(shared, KEY),
        lambda _, stage: told.append(stage),
    )


def names(team: Path) -> list[str]:
    return sorted(os.listdir(team))


@pytest.mark.slow
def test_the_second_waits_for_the_result_of_the_first(tmp_path: Path) -> None:
    team = tmp_path / "team"
    with owner(team):
        claim = Claim(SharedCache(team, 1 << 20), KEY)
        began_s = time.monotonic()
        while time.monotonic() - began_s < 2 * claims.ABANDONED_AFTER_S:  # it is touched
            assert claim.is_anothers()
            time.sleep(claims.LOOK_EVERY_S)
        assert put(SharedCache(team, 1 << 20), KEY, "of the first")
        assert ask(team) == "found"
    assert names(team) == [f"{KEY}.gpudiag"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hang"])
def test_an_owner_that_died_or_hangs_is_not_waited_for(tmp_path: Path, how: str) -> None:
    team, stages = tmp_path / "team", list[str]()
    with owner(team, how) as process:
        if how == "killed":
            process.kill()
            process.wait()
        assert ask(team, stages) is None  # and claims it
        assert set(stages) == {claims.WAITING}
        assert Claim(SharedCache(team, 1 << 20), KEY).is_anothers()


@pytest.mark.slow
def test_the_wait_is_bounded_and_clocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "WAIT_AT_MOST_S", 2.0)
    with owner(tmp_path / "team"):
        assert ask(tmp_path / "team") is None
    left = tmp_path / "other" / f".{KEY}.claim"
    left.parent.mkdir()
    left.touch()
    os.utime(left, (4e9, 4e9))  # by a clock that is years ahead
    monkeypatch.setattr(claims, "WAIT_AT_MOST_S", 1e9)
    assert ask(left.parent) is None


def test_without_a_writable_directory_nobody_waits(tmp_path: Path) -> None:
    team = tmp_path / "team"
    team.write_text("not a directory")
    stages: list[str] = []
    assert ask(team, stages) is None
    (tmp_path / "there" / f".{KEY}.claim").mkdir(parents=True)
    assert ask(tmp_path / "there", stages) is None
    assert stages == []


def test_a_released_claim_is_free_and_another_ones_stays(tmp_path: Path) -> None:
    first, second = (Claim(SharedCache(tmp_path / "team", 1), KEY) for _ in range(2))
    assert not first.is_anothers()
    assert not first.is_anothers()
    assert second.is_anothers()
    second.release()
    assert second.is_anothers()
    first.release()
    assert not second.is_anothers()
    first.release()
    assert names(tmp_path / "team") == [f".{KEY}.claim"]


@pytest.mark.slow
def test_a_tensorboard_and_a_command_analyze_a_trace_once(tmp_path: Path) -> None:
    slow_loader().write(tmp_path / "log" / "run")
    for path in (tmp_path / "log" / "run").iterdir():
        path.write_bytes(path.read_bytes() + b" " * claims.LEAST_BYTES)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    trace = only_trace(str(tmp_path / "log"))
    team = tmp_path / "team"
    shared = SharedCache(team, 1 << 30)
    mine = claims.claim_of("diagnose", trace, shared)
    assert mine is not None
    assert not mine.is_anothers()
    board = TensorBoard(tmp_path, f"--logdir={tmp_path}/log", GPUDIAG_SHARED_CACHE_DIR=str(team))
    command = subprocess.Popen(
        [sys.executable, "-c", "from tb_gpudiag.cli.main import main; main()", "diagnose", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**worker_environment(), "GPUDIAG_SHARED_CACHE_DIR": str(team)},
    )
    try:
        id_ = eventually(board.traces)[0]["id"]
        eventually(lambda: board.ask(f"report?id={id_}").get("stage") == claims.WAITING, "it waits")
        assert not shared.keys()
        mine.release()
        board.report(id_)
        said = command.communicate(timeout=HANGS_S)[1]
        origins = [board.traces()[0].get("origin", ""), *said.splitlines()]
        # One of the two has analyzed it.
        assert sum("shared cache" in origin for origin in origins) == 1, origins
        assert names(team) == [f"{content_key('diagnose', trace)}.gpudiag"]
    finally:
        command.kill()
        command.wait()
        board.process.kill()
        board.process.wait()
