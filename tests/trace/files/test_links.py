"""Nothing outside the log directory is read, whatever links there are and whoever changes them meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.digest.digest_files import find_digests
from tb_gpudiag.errors import GpudiagError, LinksNotFollowed, Unreadable
from tb_gpudiag.trace.files import local_search
from tb_gpudiag.trace.files.find import Found, find_traces
from tb_gpudiag.trace.files.opening import FOLLOW_LINKS, first_bytes, open_local
from tb_gpudiag.trace.read import read_trace
from tests.trace.files.test_find import keys, put
from tests.trace.support import document, span

SECRET = document(span(), span())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with a trace of its own, next to a folder with others."""
    put(tmp_path, "log/run/w.1.pt.trace.json", "outside/far/w.2.pt.trace.json", "outside/w.3.pt.trace.json")
    return tmp_path / "log"


def only_problem(found: Found) -> GpudiagError:
    (problem,) = found.problems
    return problem


def test_links_that_lead_outside_are_counted_and_not_followed(log: Path) -> None:
    outside = log.parent / "outside"
    (log / "linked").symlink_to(outside)
    (log / "run" / "relative").symlink_to("../../outside/far")
    (log / "w.3.pt.trace.json").symlink_to(outside / "w.3.pt.trace.json")
    (log / "notes.txt").symlink_to(outside / "w.3.pt.trace.json")  # nobody would look for a trace there
    found = find_traces(str(log))
    assert keys(found) == [("run", "w", "1")]
    problem = only_problem(found)
    assert isinstance(problem, LinksNotFollowed)
    assert problem.what == "3 links lead outside the log directory and are not followed"
    assert problem.where == str(log / "linked")
    assert FOLLOW_LINKS in problem.remedy


def test_one_link_is_one_link(log: Path) -> None:
    (log / "linked").symlink_to(log.parent / "outside")
    assert only_problem(find_traces(str(log))).what == (
        "1 link leads outside the log directory and is not followed"
    )


@pytest.mark.parametrize(("value", "followed"), [("1", True), ("0", False), ("yes", False), ("", False)])
def test_the_user_may_have_them_followed(
    log: Path, value: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLLOW_LINKS, value)
    (log / "linked").symlink_to(log.parent / "outside")
    found = find_traces(str(log))
    assert len(found.files) == (3 if followed else 1)
    assert all(read_trace(file.path, folder=file.folder).events_read for file in found.files)
    assert len(found.problems) == (not followed)


def test_the_log_directory_may_be_a_link_itself_and_may_have_links_inside(log: Path) -> None:
    (log / "latest").symlink_to("run")
    (log / "run" / "up").symlink_to(log)
    (log / "latest.pt.trace.json").symlink_to(log / "run" / "w.1.pt.trace.json")
    link = log.parent / "link"
    link.symlink_to(log)
    found = find_traces(str(link))
    assert keys(found) == [("run", "w", "1")]
    assert found.problems == []
    assert found.files[0].path == str(link / "run" / "w.1.pt.trace.json")
    assert read_trace(found.files[0].path, folder=found.files[0].folder).events_read == 1


def test_a_file_named_directly_may_be_a_link(log: Path) -> None:
    link = log / "w.9.pt.trace.json"
    link.symlink_to(log.parent / "outside" / "w.3.pt.trace.json")
    found = find_traces(str(link))
    assert keys(found) == [(".", "w", "9")]
    assert read_trace(found.files[0].path, folder=found.files[0].folder).events_read == 1


def test_links_between_log_directories_are_followed(log: Path) -> None:
    outside = log.parent / "outside"
    (log / "linked").symlink_to(outside / "far")
    (log / "w.3.pt.trace.json").symlink_to(outside / "w.3.pt.trace.json")
    found = find_traces(str(log), [str(outside), "memory://elsewhere"])
    assert keys(found) == [(".", "w", "3"), ("linked", "w", "2"), ("run", "w", "1")]
    assert found.problems == []
    assert all(read_trace(file.path, folder=file.folder).events_read for file in found.files)


def test_a_folder_whose_name_begins_like_the_log_directorys_is_outside(log: Path) -> None:
    put(log.parent, "log_of_others/w.4.pt.trace.json")
    (log / "linked").symlink_to(log.parent / "log_of_others")
    found = find_traces(str(log))
    assert keys(found) == [("run", "w", "1")]
    assert isinstance(only_problem(found), LinksNotFollowed)


def swap(path: Path, target: Path) -> None:
    path.rename(path.with_name(f"was_{path.name}"))
    path.symlink_to(target)


def test_a_file_or_folder_that_is_swapped_for_a_link_after_listing_is_not_read(log: Path) -> None:
    outside = log.parent / "outside"
    (outside / "w.1.pt.trace.json").write_bytes(SECRET)
    (file,) = find_traces(str(log)).files
    swap(log / "run" / "w.1.pt.trace.json", outside / "w.1.pt.trace.json")
    with pytest.raises(Unreadable, match="outside the log directory"):
        read_trace(file.path, folder=file.folder)
    os.unlink(log / "run" / "w.1.pt.trace.json")
    swap(log / "run", outside)
    with pytest.raises(Unreadable, match="outside the log directory"):
        read_trace(file.path, folder=file.folder)


@pytest.mark.parametrize("part", ["run", "run/w.1.pt.trace.json"])
def test_a_swap_between_checking_and_opening_is_noticed(
    log: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = log.parent / "outside"
    (outside / "w.1.pt.trace.json").write_bytes(SECRET)
    (file,) = find_traces(str(log)).files
    real = os.path.realpath

    def realpath(path: str) -> str:
        checked = real(path)
        if path == file.path:
            swap(log / part, outside if part == "run" else outside / "w.1.pt.trace.json")
        return checked

    monkeypatch.setattr(os.path, "realpath", realpath)
    with pytest.raises((OSError, Unreadable)):
        open_local(file.path, file.folder)


def test_a_folder_that_is_swapped_for_a_link_while_the_directory_is_listed_is_not_searched(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(path: str) -> object:
        entries = real(path)
        if path == str(log):
            listed = list(entries)
            swap(log / "run", log.parent / "outside")
            return _Closing(listed)
        return entries

    monkeypatch.setattr(os, "scandir", scandir)
    assert find_traces(str(log)).files == []


class _Closing(list[os.DirEntry[str]]):
    def __enter__(self) -> _Closing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_content_is_not_looked_at_through_a_link(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log, "any_name.json")
    (log.parent / "outside" / "any_name.json").write_bytes(SECRET)

    def swapped(path: str, most_bytes: int, folder: str) -> bytes:
        swap(log / "any_name.json", log.parent / "outside" / "any_name.json")
        return first_bytes(path, most_bytes, folder)

    monkeypatch.setattr(local_search, "first_bytes", swapped)
    found = find_traces(str(log))
    assert keys(found) == [("run", "w", "1")]
    assert "outside the log directory" in only_problem(found).what


def test_pipes_and_folders_are_never_opened(log: Path) -> None:
    os.mkfifo(log / "pipe")
    for name in ("pipe", "run"):
        with pytest.raises(OSError, match=r"|regular"):
            open_local(str(log / name), str(log))


def test_a_digest_file_behind_a_link_that_leads_outside_is_left_out(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, "own.gpudiag-digest")
    put(log.parent, "outside/theirs.gpudiag-digest")
    (log / "linked.gpudiag-digest").symlink_to(log.parent / "outside" / "theirs.gpudiag-digest")
    assert find_digests(str(log)) == [str(log / "own.gpudiag-digest")]
    monkeypatch.setenv(FOLLOW_LINKS, "1")
    assert len(find_digests(str(log))) == 2
