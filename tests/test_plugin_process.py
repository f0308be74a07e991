"""Real TensorBoard processes: every way to start one, and nothing breaks them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.builder import TraceBuilder
from tests.patience import HANGS_S
from tests.service.helpers import FAKE_WORKER, eventually, is_alive, write_trace

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]

# TensorBoard exits within tenths of a second. The analysis in the test takes ten minutes.
EXITS_WITHIN_S = 5.0


class TensorBoard:
    """A TensorBoard process, on a port that it chooses."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.output = folder / "output"
        self.prefix = next((a.partition("=")[2] for a in arguments if a.startswith("--path_prefix")), "")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tensorboard.main", "--port=0", "--host=127.0.0.1", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**environment_with_plugin(folder), **environment},
            )
        self.address = eventually(self._address, "TensorBoard listens")

    def _address(self) -> str:
        assert self.process.poll() is None, self.log()
        for line in self.log().splitlines():
            if " at http" in line:
                return line.partition(" at ")[2].split()[0].rstrip("/")
        return ""

    def log(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/data/{path}", timeout=HANGS_S) as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            return json.loads(answer.read())

    def ask(self, route: str) -> Any:
        return self.get(f"plugin/gpudiag/{route}")

    def traces(self) -> list[dict[str, Any]]:
        return list(self.ask("traces")["traces"])

    def report(self, id_: str) -> Any:
        def ready() -> Any:
            found = self.ask(f"report?id={id_}")
            assert found["state"] != "failed", found
            return found if found["state"] == "ready" else None

        return eventually(ready)["report"]


def environment_with_plugin(folder: Path) -> dict[str, str]:
    """Return an environment with this checkout as an installed plugin, whether or not it is installed.

    boto3 is there for a server of the tests. TensorBoard would import it, which takes it a third of a second.
    """
    environment = {**worker_environment(), "GPUDIAG_CACHE_DIR": str(folder / "cache")}
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "boto3.py").write_text("raise ImportError('boto3 is not installed')\n")
    try:
        importlib.metadata.distribution("tb-gpudiag")
    except importlib.metadata.PackageNotFoundError:
        info = site / "tb_gpudiag-0.0.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tb-gpudiag\nVersion: 0.0.0\n")
        (info / "entry_points.txt").write_text("[tensorboard_plugins]\ngpudiag = tb_gpudiag.loader:Loader\n")
    environment["PYTHONPATH"] = os.pathsep.join([str(site), environment["PYTHONPATH"]])
    return environment


def path_with_patch(folder: Path, program: str) -> str:
    """Return a PYTHONPATH with which the process of TensorBoard runs this program first."""
    patch = folder / "patch"
    patch.mkdir()
    start = 'import sys\nif "tensorboard" in " ".join(sys.orig_argv):\n'
    (patch / "sitecustomize.py").write_text(start + textwrap.indent(textwrap.dedent(program), "    "))
    return os.pathsep.join([str(patch), environment_with_plugin(folder)["PYTHONPATH"]])


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests on how TensorBoard starts: only the first one analyzes the trace."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TensorBoard]]:
    running = []

    def begin(*arguments: str, **environment: str) -> TensorBoard:
        running.append(TensorBoard(tmp_path, *arguments, **environment))
        return running[-1]

    yield begin
    for tensorboard in running:
        tensorboard.process.kill()
        tensorboard.process.wait()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with one small trace."""
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    path = trace.write(tmp_path / "log" / "run")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path / "log"


# Each option once: TensorBoard's fast loading does not support a spec, so "auto" is "false" with one.
WAYS = [
    ("--load_fast=true", "", "logdir"),
    ("--load_fast=auto", "--path_prefix=/a/b", "logdir_spec"),
    ("--load_fast=false", "", "logdir"),
]


@pytest.mark.parametrize(("load", "prefix", "watched"), WAYS)
def test_the_tab_diagnoses_however_tensorboard_is_started(
    start: Callable[..., TensorBoard], log: Path, shared_cache: Path, load: str, prefix: str, watched: str
) -> None:
    # A relative directory: TensorBoard passes it as it is.
    directory = f"--logdir={log.name}" if watched == "logdir" else f"--logdir_spec=named:{log.name}"
    tensorboard = start(
        load, directory, *([prefix] if prefix else []), GPUDIAG_SHARED_CACHE_DIR=str(shared_cache)
    )
    listed = eventually(
        lambda: found if (found := tensorboard.get("plugins_listing")["gpudiag"])["enabled"] else None
    )
    assert listed["tab_name"] == "Diagnosis"
    (trace,) = tensorboard.traces()
    assert trace["run"] == ("run" if watched == "logdir" else "named/run")
    assert tensorboard.report(trace["id"])["trace"]["run"] == trace["run"]
    module = listed["loading_mechanism"]["module_path"]
    with urllib.request.urlopen(tensorboard.address.removesuffix(tensorboard.prefix) + module) as answer:
        assert b"render" in answer.read()
    assert "Illegal" not in tensorboard.log()
    assert "will become an error" not in tensorboard.log()


def test_without_pyarrow_tensorboard_starts_without_the_tab(
    start: Callable[..., TensorBoard], log: Path, tmp_path: Path
) -> None:
    """As if it were not installed: nobody can find it."""
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        textwrap.dedent("""
            import sys

            class Blocker:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] == "pyarrow":
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

            sys.meta_path.insert(0, Blocker())
        """)
    )
    path = os.pathsep.join([str(blocker), environment_with_plugin(tmp_path)["PYTHONPATH"]])
    tensorboard = start(f"--logdir={log}", PYTHONPATH=path)
    listed = tensorboard.get("plugins_listing")
    assert "gpudiag" not in listed
    assert "scalars" in listed
    said = [line for line in tensorboard.log().splitlines() if "gpudiag" in line and "Diagnosis" in line]
    assert len(said) == 1
    assert "pyarrow" in said[0]


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGKILL])
def test_tensorboard_exits_at_once_and_stops_a_running_analysis(
    start: Callable[..., TensorBoard], tmp_path: Path, signalled: signal.Signals
) -> None:
    write_trace(tmp_path / "log", "a", "hang")
    starts = tmp_path / "starts"
    # The real plugin, with an analysis process that hangs.
    path = path_with_patch(
        tmp_path,
        f"""
        from tb_gpudiag.service import service
        service.Service.__init__.__kwdefaults__["module"] = {FAKE_WORKER!r}
        """,
    )
    tensorboard = start(f"--logdir={tmp_path / 'log'}", PYTHONPATH=path, GPUDIAG_TEST_STARTS=str(starts))
    (trace,) = eventually(tensorboard.traces)
    eventually(lambda: tensorboard.ask(f"report?id={trace['id']}")["stage"] == "working")
    worker = int(starts.read_text().split()[0])
    assert is_alive(worker)
    tensorboard.process.send_signal(signalled)
    tensorboard.process.wait(EXITS_WITHIN_S)
    eventually(lambda: not is_alive(worker))


def test_new_traces_appear_and_known_ones_are_ready_after_a_restart(
    start: Callable[..., TensorBoard], log: Path
) -> None:
    first = start(f"--logdir={log}")
    (trace,) = eventually(first.traces)
    first.report(trace["id"])
    errors_do_not_leak_into_the_page(first)
    TraceBuilder(devices=()).write(log / "other")
    eventually(lambda: len(first.traces()) == 2)
    first.process.terminate()
    first.process.wait(60)
    second = start(f"--logdir={log}")
    by_id = eventually(lambda: {found["id"]: found for found in second.traces()})
    assert by_id[trace["id"]]["state"] == "ready"
    assert by_id[trace["id"]]["sentence"]


def errors_do_not_leak_into_the_page(tensorboard: TensorBoard) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        tensorboard.ask("export?id=nothing&format=json")
    assert caught.value.code == 404
    assert caught.value.headers["X-Content-Type-Options"] == "nosniff"
    assert "Traceback" not in tensorboard.log()
