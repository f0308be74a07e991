"""Two users of one group on a shared cache. Only root can be both."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.service.shared_cache import SharedCache
from tb_gpudiag.service.trace_content import fingerprint
from tests.service.helpers import trace_file, write_trace
from tests.service.test_shared_cache import KEY, OTHER, put, text_of

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can be several users"
)

ANA, BEN, EVE = 70_001, 70_002, 70_003
GROUP, OTHER_GROUP = 70_100, 70_200
ROOM = 1 << 20


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A directory as in the documentation, below folders that everyone may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/") and "pytest" in str(folder):
            folder.chmod(0o755)
    made = tmp_path / "team"
    made.mkdir()
    os.chown(made, 0, GROUP)
    made.chmod(0o2770)
    return made


def as_user(user: int, group: int, do: Callable[[], None]) -> None:
    """Run it in a process of this user; fail if it fails there."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([group])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o077)
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_members_of_the_group_share_entries(team: Path) -> None:
    def ana() -> None:
        assert put(SharedCache(team, ROOM), KEY, "of ana")

    def ben() -> None:
        cache = SharedCache(team, ROOM)
        assert text_of(cache) == "of ana"
        assert (cache.find(KEY, "c" * 32) or ("", ""))[1] == f"user {ANA}"
        os.utime(team / f"{KEY}.gpudiag")
        assert put(cache, OTHER, "of ben")
        small = SharedCache(team, (team / f"{OTHER}.gpudiag").stat().st_size)
        assert put(small, OTHER, "of ben")
        assert small.keys() == {OTHER}  # that of ana had to go

    as_user(ANA, GROUP, ana)
    as_user(BEN, GROUP, ben)


def test_others_neither_read_nor_write(team: Path) -> None:
    def eve() -> None:
        cache = SharedCache(team, ROOM)
        assert text_of(cache) is None
        assert cache.keys() == set()
        assert not put(cache, OTHER)
        assert "Permission denied" in cache.note

    as_user(ANA, GROUP, lambda: assert_put(team))
    as_user(EVE, OTHER_GROUP, eve)


def assert_put(team: Path) -> None:
    assert put(SharedCache(team, ROOM))


def test_a_user_who_cannot_open_the_trace_has_no_fingerprint_to_ask_with(team: Path) -> None:
    path = write_trace(team.parent / "log", "worker.1")
    os.chown(path, ANA, GROUP)
    path.chmod(0o640)
    path.parent.chmod(0o755)

    def may(expected: bool) -> None:
        assert bool(fingerprint(trace_file(path))) is expected

    as_user(ANA, GROUP, lambda: may(True))
    as_user(BEN, GROUP, lambda: may(True))
    as_user(EVE, OTHER_GROUP, lambda: may(False))
