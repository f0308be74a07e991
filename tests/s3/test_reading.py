"""Files on a real S3 server are read like local ones, also over a network that fails."""

from __future__ import annotations

import gzip
import pickle
import threading
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest

import tb_gpudiag
from tb_gpudiag.cli import inputs
from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest_files import SUFFIX, find_digests, read_digest, to_bytes
from tb_gpudiag.errors import TraceError, Unreadable
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.trace.files import remote
from tb_gpudiag.trace.files.find import Found, find_traces
from tb_gpudiag.trace.files.remote import RemoteFile
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.report.reports import slow_loader
from tests.s3.server import KEY_ID, SECRET, Store
from tests.service.helpers import eventually

NAME = "run/rank0.1.pt.trace.json"
BLOCK = 4800
QUOTED = quote(SECRET, safe="")

pytestmark = pytest.mark.slow  # each test asks a server


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return slow_loader().write(tmp_path).read_bytes()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, short pauses and limits."""
    monkeypatch.setattr(remote, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(remote, "MOST_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(remote, "LEAST_BLOCK_BYTES", BLOCK // 4)
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    monkeypatch.setattr(remote, "CALL_LIMIT_S", 30.0)


def whole(url: str) -> bytes:
    with RemoteFile(url) as file:
        return b"".join(iter(lambda: file.read(1000), b""))


def gets(store: Store) -> list[str]:
    return [range_ for method, _, range_ in store.proxy.requests if method == "GET" and range_]


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_diagnosed_as_a_local_one(
    store: Store, tmp_path: Path, content: bytes, packed: bool
) -> None:
    name = NAME + ".gz" * packed
    local = tmp_path / name
    local.parent.mkdir()
    local.write_bytes(gzip.compress(content) if packed else content)
    store.put(name, local.read_bytes())
    there, here = (to_dict(tb_gpudiag.diagnose(path)) for path in (store.url(name), str(local)))
    assert there["trace"].pop("path") == store.url(name)
    assert here["trace"].pop("path") == str(local)
    assert there == here


def test_the_command_takes_a_url(store: Store, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    store.put(NAME, content)
    assert main(["diagnose", store.url(), "--format", "json"]) == 0
    assert "GD101" in capsys.readouterr().out
    assert main(["diagnose", store.url("nothing")]) != 0
    assert "there is nothing at this URL" in capsys.readouterr().err


def test_snapshots_and_digests(store: Store, content: bytes, tmp_path: Path) -> None:
    store.put("run/memory.pickle", pickle.dumps(SnapshotBuilder().document()))
    (snapshot,) = find_traces(store.url()).files
    assert read_trace(snapshot.path).kind == "snapshot"
    local = tmp_path / "rank0.1.pt.trace.json"
    local.write_bytes(content)
    digest = digest_file(only_trace(str(local)))[1]
    store.put(f"digests/rank0{SUFFIX}", to_bytes(digest))
    (path,) = find_digests(store.url())
    assert to_bytes(read_digest(path)) == to_bytes(digest)


def test_a_listing_takes_a_call_for_each_full_answer(store: Store) -> None:
    store.proxy.most_listed = 5
    for number in range(8):
        store.put(f"log/run_{number}/rank0.{number}.pt.trace.json", b"{}")
    store.put("log_2/rank0.1.pt.trace.json", b"{}")
    found = find_traces(store.url("log"))
    assert len(found.files) == 8
    assert found.problems == []
    assert [(method, path.partition("?")[0]) for method, path, _ in store.proxy.requests] == [
        ("GET", f"/{store.bucket}")
    ] * 2
    again = find_traces(store.url("log"))
    assert all(new is old for new, old in zip(again.files, found.files, strict=True))


def test_another_content_is_another_version(store: Store) -> None:
    identities = set()
    for content in (b"{}", b"[]", b"{} "):
        store.put(NAME, content)
        identities.add(find_traces(store.url()).files[0].identity)
    assert len(identities) == 3


@pytest.mark.usefixtures("fast")
def test_reading_goes_on_where_the_connection_was_lost(store: Store, content: bytes) -> None:
    store.put(NAME, content)
    store.proxy.set("drop", times=3)
    assert whole(store.url(NAME)) == content
    ranges = [tuple(map(int, range_.removeprefix("bytes=").split("-"))) for range_ in gets(store)]
    assert [begin for begin, _ in ranges[:4]] == [0] * 4  # the first three were cut
    assert [begin for begin, _ in ranges[4:]] == [end + 1 for _, end in ranges[3:-1]]
    assert ranges[-1][1] == len(content) - 1
    store.proxy.set("drop", times=3)
    assert read_trace(store.url(NAME)).status == "COMPLETE"


@pytest.mark.usefixtures("fast")
def test_a_store_that_is_busy_for_a_while_is_asked_again(store: Store, content: bytes) -> None:
    store.put(NAME, content)
    store.proxy.set("503", times=3)
    assert whole(store.url(NAME)) == content


@pytest.mark.usefixtures("fast")
def test_a_store_that_stalls_is_asked_again(
    store: Store, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CALL_LIMIT_S", 5.0)
    store.put(NAME, content)
    store.proxy.set("stall", times=1)
    assert whole(store.url(NAME)) == content
    assert store.proxy.stalled == 1
    with RemoteFile(store.url(NAME)) as file:
        store.proxy.requests.clear()
        store.proxy.set("stall", times=1)
        assert content.startswith(file.read(BLOCK))
    assert gets(store)[:2] == [f"bytes=0-{BLOCK - 1}", f"bytes=0-{BLOCK // 2 - 1}"]  # a slow network


@pytest.mark.usefixtures("fast")
def test_a_store_that_does_not_answer_is_said_to(
    store: Store, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CALL_LIMIT_S", 0.2)
    monkeypatch.setattr(remote, "LIST_LIMIT_S", 0.2)
    store.put(NAME, content)
    store.proxy.set("stall")
    with pytest.raises(Unreadable, match="the store does not answer"):
        read_trace(store.url(NAME))
    assert store.proxy.stalled <= remote.ATTEMPTS  # or fewer, if the machine was too busy to ask in time
    found = find_traces(store.url())
    assert ([problem.what for problem in found.problems], found.lost) == (["the store does not answer"], True)


@pytest.mark.usefixtures("fast")
def test_the_command_names_a_file_that_stalls(
    store: Store, content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put(NAME, content)
    (file,) = find_traces(store.url()).files
    monkeypatch.setattr(inputs, "find_traces", lambda *_: Found([file]))
    monkeypatch.setattr(remote, "CALL_LIMIT_S", 0.2)
    store.proxy.set("stall")
    assert main(["diagnose", store.url()]) != 0
    assert f"{store.url(NAME)}: the store does not answer (check the connection)" in capsys.readouterr().err


@pytest.mark.usefixtures("fast")
def test_a_file_that_is_replaced_meanwhile_is_not_mixed(store: Store, content: bytes) -> None:
    store.put(NAME, content)
    with RemoteFile(store.url(NAME)) as file:
        assert file.read(BLOCK) == content[:BLOCK]
        store.put(NAME, content[::-1])
        with pytest.raises(Unreadable, match="changed while it was read"):
            file.read(BLOCK)
    store.put(NAME, content)
    with RemoteFile(store.url(NAME)) as file:
        file.read(BLOCK)
        store.remove(NAME)
        with pytest.raises(FileNotFoundError):
            file.read(BLOCK)


def test_a_listing_from_before_does_not_hide_a_new_version(store: Store) -> None:
    """s3fs remembers what it listed."""
    store.put(NAME, b"{}")
    find_traces(store.url())
    store.put(NAME, b'{"traceEvents": []}')
    assert whole(store.url(NAME)) == b'{"traceEvents": []}'


def test_a_signed_url_is_read_and_not_shown(store: Store, content: bytes, tmp_path: Path) -> None:
    store.put(NAME, content)
    url = store.client.generate_presigned_url("get_object", Params={"Bucket": store.bucket, "Key": NAME})
    signature = url.rpartition("Signature=")[2].partition("&")[0]
    report = tb_gpudiag.diagnose(url)
    assert (report.findings[0].rule, signature in str(report)) == ("GD101", False)
    assert report.trace.path.endswith(NAME)
    store.remove(NAME)
    with pytest.raises(TraceError) as raised:
        tb_gpudiag.diagnose(url)
    assert signature not in str(raised.value)
    assert KEY_ID not in str(raised.value)


def errors_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown of real errors of s3fs and botocore."""
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    shown = []

    def look(url: str) -> None:
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        for problem in find_traces(url).problems:
            shown.append(str(problem))
        with pytest.raises(TraceError) as raised:
            read_trace(f"{url}/{NAME}")
        shown.append(str(raised.value))

    secret_url = f"s3://{KEY_ID}:{QUOTED}@{store.bucket}-missing/run?X-Amz-Signature=abcdef"
    look(secret_url)
    store.proxy.set("503")
    look(secret_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{KEY_ID}:{QUOTED}@127.0.0.1:1/?X-Amz-Signature=abcdef")
    look(store.url())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    look(store.url())
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    look(store.url())
    monkeypatch.setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEXAMPLETOKEN")
    look(store.url())
    return shown


def test_errors_show_no_credentials(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = errors_of(store, monkeypatch)
    assert len(shown) == 12
    for text in shown:
        assert not any(word in text for word in (KEY_ID, SECRET, QUOTED, "abcdef", "FwoGZ"))
        assert "\n" not in text


def test_a_stalled_read_does_not_keep_the_process_from_ending(store: Store) -> None:
    store.put(NAME, b"{}")
    store.proxy.set("stall")
    thread = threading.Thread(target=lambda: find_traces(store.url()), daemon=True)
    thread.start()
    eventually(lambda: store.proxy.stalled, "stalled")
    store.proxy.set("pass")
    thread.join(60)
    assert not thread.is_alive()
