"""A TensorBoard on an S3 server: the list survives a lost network, and recovers by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tb_gpudiag.service.analyses import analysis_queue
from tb_gpudiag.service.index import roots
from tb_gpudiag.trace.files import remote
from tests.builder import TraceBuilder
from tests.plugin.server import Server
from tests.report.reports import slow_loader
from tests.s3.server import KEY_ID, SECRET, Store
from tests.service.helpers import eventually, hasten, write_trace
from tests.test_plugin_process import TensorBoard, path_with_patch

pytestmark = pytest.mark.slow


@pytest.fixture
def server(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """On a bucket and a local directory with a trace each, and with short pauses."""
    hasten(monkeypatch)
    monkeypatch.setattr(roots, "RETRY_S", 0.2)
    monkeypatch.setattr(roots, "SLOW_S", 0.5)
    monkeypatch.setattr(roots, "MOST_PAUSE_S", 0.1)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    store.put("log/run/rank0.1.pt.trace.json", slow_loader().write(tmp_path).read_bytes())
    write_trace(tmp_path / "local", "b.1.pt.trace.json")
    made = Server(logdir_spec=f"store:{store.url('log')},local:{tmp_path}/local")
    yield made
    for plugin in made.plugins:
        plugin.close()


@pytest.fixture
def until(server: Server) -> Callable[[list[str], str], None]:
    """Wait until the list has these runs, and this problem or none."""

    def wait(runs: list[str], problem: str) -> None:
        def reached() -> bool:
            found = server.json("traces")
            problems = [f"{one['where']}: {one['what']} ({one['remedy']})" for one in found["problems"]]
            matches = len(problems) == bool(problem) and all(problem in one for one in problems)
            return matches and [trace["run"] for trace in found["traces"]] == runs

        eventually(reached, f"{runs} {problem}")

    return wait


def test_the_list_survives_a_lost_network(
    store: Store, server: Server, until: Callable[[list[str], str], None], tmp_path: Path
) -> None:
    until(["store/run", "local"], "")
    (trace, _) = server.json("traces")["traces"]
    report = server.ready(f"report?id={trace['id']}")["report"]
    assert report["trace"]["path"] == store.url("log/run/rank0.1.pt.trace.json")
    assert report["findings"][0]["rule"] == "GD101"

    store.proxy.set("503")
    until(
        ["store/run", "local"],
        f"{store.url('log')}: Please reduce your request rate. The list is from before",
    )
    assert server.ready(f"report?id={trace['id']}")["report"] == report
    store.put("log/run_2/rank0.1.pt.trace.json", TraceBuilder().bytes())
    store.proxy.set("pass")
    until(["store/run", "store/run_2", "local"], "")

    store.proxy.set("stall")
    until(["store/run", "store/run_2", "local"], "the store does not answer. The list is from before")
    write_trace(tmp_path / "local", "c.2.pt.trace.json")
    until(["store/run", "store/run_2", "local", "local"], "connection; it is asked again until it answers")
    store.remove("log/run_2/rank0.1.pt.trace.json")
    store.proxy.set("pass")
    until(["store/run", "local", "local"], "")


def test_a_store_that_never_answered(
    store: Store, server: Server, until: Callable[[list[str], str], None]
) -> None:
    store.proxy.set("stall")
    broken = Server(logdir=store.url("log"))
    try:
        found = eventually(lambda: broken.json("traces").get("problems"))
        assert found[0]["what"].startswith("the store ")
        assert json.loads(broken.client.get("/data/plugins_listing").data)["gpudiag"]["enabled"]
        store.proxy.set("pass")
        eventually(lambda: broken.json("traces")["traces"], "listed")
    finally:
        for plugin in broken.plugins:
            plugin.close()


@pytest.mark.usefixtures("server")
def test_a_stalled_read_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_queue, "RETRY_AFTER_S", 0.5)
    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "30")  # the second try has to end within it, on a busy machine
    here = Server(logdir=store.url("log"))
    try:
        id_ = here.only_id()
        store.proxy.set("stall")

        def stage() -> str:
            found = here.json(f"report?id={id_}")
            assert found["state"] != "failed", found
            return str(found.get("stage", ""))

        eventually(lambda: stage() == "waiting for the store")
        told = eventually(lambda: found if "It is tried again" in (found := stage()) else "")
        assert told.startswith(
            f"{store.url('log/run/rank0.1.pt.trace.json')}: the store did not send the file"
        )
        assert "check the connection" in told
        store.proxy.set("pass")
        assert here.ready(f"report?id={id_}")["report"]["findings"][0]["rule"] == "GD101"
    finally:
        for plugin in here.plugins:
            plugin.close()


def test_tensorboards_own_process(store: Store, tmp_path: Path) -> None:
    store.put("log/run/rank0.1.pt.trace.json", slow_loader().write(tmp_path).read_bytes())
    path = path_with_patch(
        tmp_path,
        """
        from tb_gpudiag.service.index import log_index
        from tb_gpudiag.trace.files import remote
        log_index.SETTLED_AFTER_S = 0.3
        remote.ATTEMPTS = 1  # s3fs makes several of each
        """,
    )
    tensorboard = TensorBoard(tmp_path, f"--logdir={store.url('log')}", **store.environment, PYTHONPATH=path)
    try:
        (trace,) = eventually(tensorboard.traces, "listed")
        assert trace["run"] == "run"
        store.proxy.set("drop", times=2)
        assert tensorboard.report(trace["id"])["findings"][0]["rule"] == "GD101"
        store.proxy.set("503")
        eventually(lambda: tensorboard.ask("traces").get("problems"), "told")
        assert [one["id"] for one in tensorboard.traces()] == [trace["id"]]
        assert "gpudiag" in tensorboard.get("plugins_listing")
        log = tensorboard.log()
        assert not any(secret in log for secret in (KEY_ID, SECRET)), log
    finally:
        tensorboard.process.kill()
        tensorboard.process.wait()
