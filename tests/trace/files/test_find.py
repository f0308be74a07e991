"""Traces in a log directory, and their names."""

from __future__ import annotations

import gzip
import os
import pickle
import sys
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from tb_gpudiag.errors import Unreadable
from tb_gpudiag.trace.files import local_search
from tb_gpudiag.trace.files.find import Found, find_traces, parse_logdir_spec
from tb_gpudiag.trace.files.opening import FOLLOW_LINKS
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.trace.support import document, span
from tests.with_each import with_each

CONTENT = document(span())


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)


def keys(found: Found) -> list[tuple[str, str, str]]:
    return [(file.run, file.worker, file.span) for file in found.files]


def test_run_worker_and_span(tmp_path: Path) -> None:
    put(
        tmp_path,
        "host_7.1000.pt.trace.json",
        "host_7.999.pt.trace.json.gz",
        "a/b/rank10.5.pt.trace.json",
        "a/b/rank2.5.pt.trace.json",
        "a/no_time.pt.trace.json",
        "a/dots.in.name.17.pt.trace.json.gz",
        "a/.3.pt.trace.json",
    )
    put(
        tmp_path,
        "a/x.pt.trace.json.tmp",
        "a/y.1.pt.trace.jsonl",
        "events.out.tfevents.1",
    )
    found = find_traces(str(tmp_path))
    assert keys(found) == [
        (".", "host_7", "999"),
        (".", "host_7", "1000"),
        ("a", "", "3"),
        ("a", "dots.in.name", "17"),
        ("a", "no_time", ""),
        ("a/b", "rank2", "5"),
        ("a/b", "rank10", "5"),
    ]
    assert found.problems == []
    assert all(file.size_bytes == len(CONTENT) and file.modified_ns > 0 for file in found.files)
    assert all(read_trace(file.path).events_read == 1 for file in found.files)


KINETO = b'\n{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0}],\n  "traceEvents": []}'


@with_each(
    ("name", "content", "found"),
    [
        ("trace.json", KINETO, True),
        ("trace_rank3.json.gz", KINETO, True),
        ("step_100.json", CONTENT, True),
        ("step_100.json", b'{"schemaVersion": 1, "distributedInfo": {"rank": 3}', True),
        ("old.json", b'[\n  {"ph": "X", "cat": "Operator", "name": "aten::mm"', True),
        ("config.json", b'{"schemaVersion": 2, "name": "a package"}', False),
        ("other.json", b'{"traceEvents": [{"ph": "X", "cat": "browser", "name": "paint"}]}', False),
        ("trace.json", b'{"trace": []}', False),
        ("trace.json", b"", False),
        ("numbers.json", b"[[1, 2], [3, 4]]", False),
        ("trace.json.txt", KINETO, False),
    ],
)
def test_a_trace_of_any_name_is_found_by_its_content(
    name: str, content: bytes, found: bool, tmp_path: Path
) -> None:
    data = gzip.compress(content) if name.endswith(".gz") else content
    (tmp_path / name).write_bytes(data)
    files = find_traces(str(tmp_path)).files
    assert [file.worker for file in files] == ([name.split(".")[0]] if found else [])
    assert all(file.kind == "trace" for file in files)


@with_each(
    ("name", "worker", "span_of_name"),
    [
        ("trace.json", "trace", ""),
        ("trace.12.json.gz", "trace", "12"),
        ("w.5.pt.trace.json", "w", "5"),
        ("anything", "anything", ""),
    ],
)
def test_a_file_named_directly_may_have_any_name(
    name: str, worker: str, span_of_name: str, tmp_path: Path
) -> None:
    put(tmp_path, name)
    found = find_traces(str(tmp_path / name))
    assert keys(found) == [(".", worker, span_of_name)]
    assert found.files[0].path == str(tmp_path / name)


def test_files_that_share_a_name_do_not_clash(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a/w.1.pt.trace.json",
        "a/w.1.pt.trace.json.gz",
        "b/w.1.pt.trace.json",
        "a/w.01.pt.trace.json",
    )
    found = find_traces(str(tmp_path))
    assert len(found.files) == 4
    assert len({file.path for file in found.files}) == len({file.identity for file in found.files}) == 4


def test_identity_changes_only_with_the_file(tmp_path: Path) -> None:
    put(tmp_path, "w.1.pt.trace.json")
    path = tmp_path / "w.1.pt.trace.json"

    def identity() -> str:
        return find_traces(str(tmp_path)).files[0].identity

    seen = [identity(), identity()]
    assert seen[0] == seen[1]
    path.write_bytes(CONTENT + b" ")  # longer
    seen.append(identity())
    os.utime(path, ns=(1, 1))  # same length, another time
    seen.append(identity())
    other = tmp_path / "other"
    other.write_bytes(CONTENT + b" ")
    os.utime(other, ns=(1, 1))
    os.replace(other, path)  # same length and time, but another file
    seen.append(identity())
    assert len(set(seen)) == 4


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLLOW_LINKS, "1")


@pytest.mark.usefixtures("following")
def test_links_are_followed_once(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    put(root, "real/w.1.pt.trace.json")
    put(outside, "far/w.2.pt.trace.json", "w.3.pt.trace.json")
    (root / "real" / "up").symlink_to(root)  # a loop
    (root / "a_link").symlink_to(root / "real")  # sorts before "real", but is a link
    (root / "out").symlink_to(outside)
    (outside / "far" / "back").symlink_to(root)
    (root / "file.4.pt.trace.json").symlink_to(outside / "w.3.pt.trace.json")
    (root / "same.5.pt.trace.json").symlink_to(root / "real" / "w.1.pt.trace.json")
    found = find_traces(str(root))
    assert keys(found) == [("out", "w", "3"), ("out/far", "w", "2"), ("real", "w", "1")]
    assert found.problems == []


@pytest.mark.usefixtures("following")
@pytest.mark.parametrize("up", ["/", "..", "../.."])
def test_a_link_to_a_folder_above_is_not_followed(tmp_path: Path, up: str) -> None:
    root = tmp_path / "outer" / "root"
    put(root, "run/w.1.pt.trace.json")
    put(tmp_path, "other/w.2.pt.trace.json")
    (root / "up").symlink_to(up)
    (tmp_path / "other" / "indirect").symlink_to("/")
    (root / "other").symlink_to(tmp_path / "other")
    found = find_traces(str(root))
    assert keys(found) == [("other", "w", "2"), ("run", "w", "1")]
    # The first link to a folder is named.
    assert str(root / "up") in {problem.where for problem in found.problems}
    assert len(found.problems) == (1 if up == "/" else 2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.usefixtures("following")
@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys", "/sys/class"])
def test_file_systems_of_the_kernel_are_not_searched(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "run/w.1.pt.trace.json")
    (tmp_path / "link").symlink_to(folder)
    listed: list[str] = []
    real = os.scandir

    def scandir(path: str) -> object:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find_traces(str(tmp_path))
    assert keys(found) == [("run", "w", "1")]
    assert sorted(listed) == [str(tmp_path), str(tmp_path / "run")]


@pytest.mark.usefixtures("following")
def test_links_that_lead_to_very_many_folders_are_followed_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_search, "_MOST_LINKED_FOLDERS", 10)
    root, outside = tmp_path / "root", tmp_path / "outside"
    for number in range(20):
        put(root, f"{number}/w.1.pt.trace.json")
        put(outside, f"{number}/w.1.pt.trace.json")
    (root / "link").symlink_to(outside)
    found = find_traces(str(root))
    assert len(found.files) == 20 + 9
    (problem,) = found.problems
    assert "more than 10 folders" in problem.what


@pytest.mark.usefixtures("following")
def test_a_link_to_a_file_outside_is_found(tmp_path: Path) -> None:
    put(tmp_path, "outside.json")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "w.4.pt.trace.json").symlink_to(tmp_path / "outside.json")
    assert keys(find_traces(str(tmp_path / "root"))) == [(".", "w", "4")]


@pytest.mark.usefixtures("following")
def test_broken_links_are_problems_and_the_search_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "good/w.1.pt.trace.json")
    (tmp_path / "bad.2.pt.trace.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round.3.pt.trace.json").symlink_to(tmp_path / "round.3.pt.trace.json")
    found = find_traces(str(tmp_path))
    assert keys(found) == [("good", "w", "1")]
    assert sorted(os.path.basename(problem.where) for problem in found.problems) == [
        "bad.2.pt.trace.json",
        "round.3.pt.trace.json",
    ]
    assert all(isinstance(problem, Unreadable) and problem.remedy for problem in found.problems)


def test_a_folder_that_cannot_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "good/w.1.pt.trace.json", "closed/w.2.pt.trace.json")
    real = os.scandir

    def scandir(path: str) -> object:
        if os.path.basename(path) == "closed":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find_traces(str(tmp_path))
    assert keys(found) == [("good", "w", "1")]
    assert [problem.where for problem in found.problems] == [str(tmp_path / "closed")]


def test_pipes_and_folders_named_like_traces_are_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.1.pt.trace.json")
    put(tmp_path, "dir.pt.trace.json/w.2.pt.trace.json")
    assert keys(find_traces(str(tmp_path))) == [("dir.pt.trace.json", "w", "2")]


class _Azure(MemoryFileSystem):  # type: ignore[misc]
    """A file system as adlfs: several schemes, an account in the URL, and a list for what is a file."""

    protocol = ("abfs", "az")
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        bucket, _, rest = path.removeprefix("abfs://").removeprefix("az://").strip("/").partition("/")
        return f"/{bucket.partition('@')[0]}/{rest}".rstrip("/")

    def find(self, path: str, **options: Any) -> Any:
        return [path] if self.isfile(path) else super().find(path, **options)


@pytest.mark.parametrize("root", ["az://box", "abfs://box", "abfs://box@account.dfs.core.windows.net"])
def test_files_in_a_store_keep_the_url_that_the_user_wrote(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in _Azure.protocol:
        monkeypatch.setitem(_registry, scheme, _Azure)
    fsspec.filesystem("az").pipe("/box/log/run/w.1.pt.trace.json", CONTENT)
    (file,) = find_traces(f"{root}/log/").files
    assert (file.path, file.run) == (f"{root}/log/run/w.1.pt.trace.json", "run")
    (same,) = find_traces(file.path).files
    assert (same.path, same.run) == (file.path, ".")


@with_each("root", ["missing", "a\0b", "memory://missing-root", "nosuch://x"])
def test_a_missing_root_is_a_problem(root: str, tmp_path: Path) -> None:
    if "://" not in root:
        root = str(tmp_path / root)
    found = find_traces(root)
    assert found.files == []
    assert [type(problem) for problem in found.problems] == [Unreadable]
    assert found.problems[0].where == root


def test_an_empty_folder_has_no_traces_and_no_problem(tmp_path: Path) -> None:
    assert find_traces(str(tmp_path)) == Found()


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.1.pt.trace.json")
    try:
        put(tmp_path, name)
    except OSError:
        pytest.skip("this file system refuses such names")
    found = find_traces(str(tmp_path))
    assert found.files[0].worker.encode()  # can be shown and sent
    assert read_trace(found.files[0].path).events_read == 1


def test_urls() -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/find-logs/run/w.1.pt.trace.json", CONTENT)
    system.pipe("/find-logs/w.2.pt.trace.json", CONTENT)
    system.pipe("/find-logs/run/notes.txt", b"")
    found = find_traces("memory://find-logs")
    assert keys(found) == [(".", "w", "2"), ("run", "w", "1")]
    assert all(read_trace(file.path).events_read == 1 for file in found.files)
    before = [file.identity for file in found.files]
    system.pipe("/find-logs/w.2.pt.trace.json", CONTENT + b" ")
    after = [file.identity for file in find_traces("memory://find-logs/").files]
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)
    assert keys(find_traces("memory://find-logs/run/w.1.pt.trace.json")) == [(".", "w", "1")]


def pickle_of(value: object, path: Path, protocol: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = pickle.dumps(value, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def test_other_pickles_are_not_taken_for_memory_snapshots(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder().document()
    pickle_of(snapshot, tmp_path / "run" / "oom_rank3.12.pickle")
    pickle_of(snapshot, tmp_path / "run" / "oom_rank0.pickle.gz")
    for protocol in (2, 3, 4, 5):
        pickle_of(snapshot, tmp_path / f"protocol {protocol}.pickle", protocol)
    listed = SnapshotBuilder()
    listed.segment(1 << 20)
    for protocol in (2, 4):
        pickle_of(listed.document("segments only"), tmp_path / "run" / f"list{protocol}.pickle", protocol)
    pickle_of({"epoch": 3, "segments": []}, tmp_path / "run" / "checkpoint.pickle")
    pickle_of([1, 2], tmp_path / "run" / "data.pickle.gz")
    put(tmp_path, "run/text.pickle", "run/snapshot.pkl")
    (tmp_path / "still_to_be_written.pickle").touch()
    (tmp_path / "cut.pickle.gz").write_bytes(b"\x1f\x8b\x08")
    found = find_traces(str(tmp_path))
    assert found.problems == []
    assert [(file.run, file.worker, file.span, file.kind) for file in found.files] == [
        *((".", f"protocol {protocol}", "", "snapshot") for protocol in (2, 3, 4, 5)),
        ("run", "list2", "", "snapshot"),
        ("run", "list4", "", "snapshot"),
        ("run", "oom_rank0", "", "snapshot"),
        ("run", "oom_rank3", "12", "snapshot"),
    ]
    assert all(read_trace(file.path).kind == "snapshot" for file in found.files)


def test_a_pickle_that_becomes_a_snapshot_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"
    pickle_of([], path)
    assert find_traces(str(tmp_path)).files == []
    pickle_of(SnapshotBuilder().document(), path)
    assert keys(find_traces(str(tmp_path))) == [(".", "x", "")]


def test_each_version_of_a_pickle_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickle_of([], tmp_path / "x.pickle")
    pickle_of(SnapshotBuilder().document(), tmp_path / "y.pickle")
    found = find_traces(str(tmp_path)).files

    def refuse(*_: object) -> None:
        raise AssertionError("it was opened again")

    monkeypatch.setattr("builtins.open", refuse)
    assert find_traces(str(tmp_path)).files == found


def test_memory_timelines_are_found_by_their_names(tmp_path: Path) -> None:
    put(
        tmp_path,
        "rank0.raw.json.gz",
        "rank1.memory_timeline.json",
        "memory_timeline.json.gz",
        "memory_timeline.html",
    )
    found = find_traces(str(tmp_path)).files
    assert [(file.worker, file.kind) for file in found] == [
        ("memory_timeline", "memory_timeline"),
        ("rank0", "memory_timeline"),
        ("rank1.memory_timeline", "memory_timeline"),
    ]


def test_pickles_in_a_store_are_found_by_their_names() -> None:
    system = fsspec.filesystem("memory")
    others = ("checkpoint.pickle", "bedroom.pickle")
    for name in ("a_Snapshot.pickle", "memory_rank0.pickle.gz", "oom_rank1.pkl", *others):
        system.pipe(f"/find-pickles/{name}", pickle.dumps(SnapshotBuilder().document()))
    found = find_traces("memory://find-pickles").files
    assert [(file.worker, file.kind) for file in found] == [
        ("a_Snapshot", "snapshot"),
        ("memory_rank0", "snapshot"),
        ("oom_rank1", "snapshot"),
    ]
    assert read_trace(found[0].path).kind == "snapshot"
    assert keys(find_traces("memory://find-pickles/checkpoint.pickle")) == [(".", "checkpoint", "")]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("/logs", [("", "/logs")]),
        ("train:/logs/a,test:/logs/b", [("train", "/logs/a"), ("test", "/logs/b")]),
        ("/logs/a:b", [("", "/logs/a:b")]),
        ("name:/logs/a:b", [("name", "/logs/a:b")]),
        ("gs://bucket/x,s3:x", [("", "gs://bucket/x"), ("s3", os.path.realpath("x"))]),
        ("name:gs://bucket/x", [("name", "gs://bucket/x")]),
        ("C:\\logs\\a,d:/logs", [("", "C:\\logs\\a"), ("d", "/logs")]),
        ("name:C:\\logs", [("name", "C:\\logs")]),
        ("a:/logs,b:/logs", [("b", "/logs")]),
        ("relative", [("", os.path.realpath("relative"))]),
        ("~/x", [("", os.path.realpath(os.path.expanduser("~/x")))]),
        (",,", []),
        ("", []),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_logdir_spec(spec: str, named: list[tuple[str, str]]) -> None:
    assert parse_logdir_spec(spec) == named


@pytest.mark.slow
@with_each("spec", ["/logs", "a:/x,b:/y", "/a:b", "n:/a:b", "gs://b/x", "n:gs://b/x", "~/x,rel", "a:/x,b:/x"])
def test_logdir_spec_is_parsed_as_tensorboard_does(spec: str) -> None:
    data_ingester = pytest.importorskip("tensorboard.backend.event_processing.data_ingester")
    theirs = data_ingester._parse_event_files_spec(spec)
    assert parse_logdir_spec(spec) == [(name or "", path) for path, name in theirs.items()]
