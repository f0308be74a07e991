"""Fixtures for all tests, and which tests run when."""

from __future__ import annotations

import gc
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

from tb_gpudiag.service import slices
from tb_gpudiag.service.processes import memory_limit
from tb_gpudiag.service.processes.child import Child

# Hypothesis fails an example that takes over 200 ms. On a loaded machine that says nothing about the code.
settings.register_profile("any_machine", deadline=None, max_examples=30)
settings.register_profile("quick", deadline=None, max_examples=10)  # of `make quick`
settings.load_profile("any_machine")

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_TRACES = REPOSITORY.parent / "shared" / "traces"
"""Real traces, recorded by others; they are not part of the project. See real_traces.py."""

SHARED_SIMULATIONS = ("tests.simulator.diagnosed", "tests.simulator.jobs.testing")

BENCHMARKS = REPOSITORY / "tests" / "benchmarks"

MARKS_OF_MODULE = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)
MARK = re.compile(r"pytest\.mark\.(slow|real|torch)\b")


@pytest.fixture(autouse=True, scope="session")
def unlimited() -> Iterator[None]:
    """Keep commands from limiting the memory of this process, which all tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_limit, "limit_memory", lambda *_: False)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_priority() -> Iterator[None]:
    """Analyze at the priority of the tests that wait for it: on a busy machine, a low one stalls them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Child.__init__.__kwdefaults__ or {}, "nice", 0)
        patch.setattr(slices, "NICE", 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep results out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Empty folders, each made when it is asked for."""
    base = tmp_path_factory.mktemp("tests")
    return (base / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(folders: Iterator[Path]) -> Path:
    """A folder of this test alone. For that of pytest, a link to the latest one is replaced each time."""
    folder = next(folders)
    folder.mkdir()
    return folder


@pytest.fixture
def in_process() -> Iterator[None]:
    """Analyze in threads of this process: for tests of results, not of processes."""
    from tests.service.in_process import analyses_in_process  # other tests do not need it

    with analyses_in_process():
        yield


@pytest.fixture
def diagnosed_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnose recordings of a training in this process: for tests that are not about the helper process.

    Helpers that copy to a store are processes as usual.
    """
    from tb_gpudiag.service.processes.child import Child
    from tb_gpudiag.training import helper
    from tests.service.in_process import InProcess

    def child(module: str, **options: Any) -> Any:
        return (Child if module.endswith("store") else InProcess)(module, **options)

    monkeypatch.setattr(helper, "Child", child)


@pytest.fixture(scope="session")
def torch() -> Any:
    """Skips the test if torch is not installed, and marks it `torch`: `make test-torch` runs it."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def gloo(torch: Any) -> None:
    """Skips the test if ranks cannot communicate on the CPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch without Gloo")


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Folder of real traces. Skips the test if it does not exist."""
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"no real traces at {SHARED_TRACES}")
    return SHARED_TRACES


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker of pytest-xdist, report a test that passes once, and not as five events.

    Each is written, sent, read and handed to all plugins again, which takes longer than many a test.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_collection_finish() -> None:
    """Collect garbage less often, and leave the collected tests out.

    Shared simulated jobs are millions of objects that stay. Garbage collection took a quarter of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Let the end of the process free everything, as usual.

    Cached objects are freed first: collecting garbage among them took ten seconds.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for value in vars(module).values():
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
    gc.unfreeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of which every test is deselected: some import torch, which takes seconds."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    if collection_path.parent == BENCHMARKS and text.count("def test_") == text.count(
        "@pytest.mark.benchmark"
    ):
        return None if _asked_for_benchmarks(config) else True
    marks = MARKS_OF_MODULE.search(text)
    found = MARK.findall(marks[1]) if marks else []
    return True if any(f"not {mark}" in config.option.markexpr for mark in found) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the benchmarks out, mark tests that use torch, and put the tests in order."""
    if not _asked_for_benchmarks(config):
        left_out = [item for item in items if item.get_closest_marker("benchmark")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if "torch" in _fixtures(item):
            item.add_marker("torch")
        if item.get_closest_marker("torch"):
            item.add_marker("slow")
    _put_in_order(items)


def _put_in_order(items: list[pytest.Item]) -> None:
    """Put tests on one real trace in a row, so that they share what is read.

    Tests on simulated traces that several modules share come first, so that one process simulates them.
    """
    folders = {path.name for path in SHARED_TRACES.iterdir()} if SHARED_TRACES.is_dir() else set()
    trace_of = {item: _real_trace(item, folders) for item in items}
    for item, trace in trace_of.items():
        if trace is not None:
            item.add_marker("real")

    def place(item: pytest.Item) -> tuple[bool, str, bool]:
        trace = trace_of[item]
        in_front = _on_simulated(item.getparent(pytest.Module))
        return trace is not None, trace or "", not in_front

    items.sort(key=place)


def _asked_for_benchmarks(config: pytest.Config) -> bool:
    """Return whether the command line names the benchmarks: their folder or a test in it, or their marker."""
    folder = config.invocation_params.dir
    named = [(folder / argument.split("::")[0]).resolve() for argument in config.args]
    return "benchmark" in config.option.markexpr or any(BENCHMARKS in (path, *path.parents) for path in named)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


@cache
def _on_simulated(module: pytest.Module | None) -> bool:
    """Return whether the module uses simulated traces that others use, too."""
    names = vars(module.obj).values() if module else ()
    return any(getattr(value, "__module__", "") in SHARED_SIMULATIONS for value in names)


def _real_trace(item: pytest.Item, folders: set[str]) -> str | None:
    """Return the real trace that a test is parametrized with, "" for several, None if it needs none."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        trace = str(value).removeprefix(f"{SHARED_TRACES}/")
        if trace.split("/")[0] in folders:
            return trace
    return "" if "shared_traces" in _fixtures(item) else None
