"""Two users of one group on a shared cache. Only root can be both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tb_gpudiag.service.caches.claims import fingerprint
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.service.helpers import trace_file, write_trace
from tests.service.test_shared_cache import KEY, MARK, OTHER, put, text_of
from tests.test_plugin_process import REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can be several users"),
]

ANA, BEN, EVE = 70_001, 70_002, 70_003
GROUP, OTHER_GROUP = 70_100, 70_200
GROUPS = {ANA: GROUP, BEN: GROUP, EVE: OTHER_GROUP}
ROOM = 1 << 20


def share(team: Path) -> None:
    assert put(SharedCache(team, ROOM), KEY, "of ana")


def use_and_replace(team: Path) -> None:
    cache = SharedCache(team, ROOM)
    assert text_of(cache) == "of ana"
    found = cache.find(KEY, MARK)
    assert found is not None
    assert found[1] == f"user {ANA}"
    os.utime(team / f"{KEY}.gpudiag")
    assert put(cache, OTHER, "of ben")
    small = SharedCache(team, (team / f"{OTHER}.gpudiag").stat().st_size)
    assert put(small, OTHER, "of ben")
    assert small.keys() == {OTHER}  # that of ana had to go


def try_in_vain(team: Path) -> None:
    cache = SharedCache(team, ROOM)
    assert text_of(cache) is None
    assert cache.keys() == set()
    assert not put(cache, OTHER)
    assert "Permission denied" in cache.note


def open_trace(path: Path) -> None:
    assert fingerprint(trace_file(path))


def open_trace_in_vain(path: Path) -> None:
    assert not fingerprint(trace_file(path))


STEPS: Mapping[str, Callable[[Path], None]] = {
    step.__name__: step for step in (share, use_and_replace, try_in_vain, open_trace, open_trace_in_vain)
}

# Everything is imported first: these users cannot read this checkout. Each is a fork, so it is imported once.
PROGRAM = """
import json, os, sys
from pathlib import Path
from tests.service.test_shared_by_users import STEPS

for user, group, name in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o077)
        STEPS[name](Path(sys.argv[1]))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


def as_users(path: Path, *steps: tuple[int, Callable[[Path], None]]) -> None:
    """Run each step in a process of its user; fail if one fails there."""
    environment = worker_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), environment["PYTHONPATH"]])
    named = json.dumps([(user, GROUPS[user], step.__name__) for user, step in steps])
    command = [sys.executable, "-c", PROGRAM, str(path), named]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everyone may enter. Not one of pytest's: each new pytest closes those to other users."""
    with TemporaryDirectory(prefix="gpudiag-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def team(open_folder: Path) -> Path:
    """A directory as in the documentation."""
    made = open_folder / "team"
    made.mkdir()
    os.chown(made, 0, GROUP)
    made.chmod(0o2770)
    return made


def test_members_of_the_group_share_entries_and_others_do_not(team: Path) -> None:
    as_users(team, (ANA, share), (EVE, try_in_vain), (BEN, use_and_replace))


def test_a_user_who_cannot_open_the_trace_has_no_fingerprint_to_ask_with(open_folder: Path) -> None:
    path = write_trace(open_folder / "log", "worker.1")
    os.chown(path, ANA, GROUP)
    path.chmod(0o640)
    path.parent.chmod(0o755)
    as_users(path, (BEN, open_trace), (EVE, open_trace_in_vain))
