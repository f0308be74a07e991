"""The loader: TensorBoard starts, whatever is missing or broken."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tensorboard.plugins import base_plugin

from tb_gpudiag.loader import Loader


@pytest.mark.slow
def test_importing_the_loader_imports_nothing_that_may_be_missing() -> None:
    script = """
        import sys
        import tensorboard.plugins.base_plugin
        before = set(sys.modules)
        import tb_gpudiag.loader
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(new - set(sys.stdlib_module_names)))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["tb_gpudiag"]


def test_records_are_kept_unless_the_user_says_how_many() -> None:
    for given, kept in (({}, 500), ({"gpudiag": 3}, 3)):
        flags = argparse.Namespace(samples_per_plugin=dict(given))
        Loader().fix_flags(flags)
        assert flags.samples_per_plugin == {"gpudiag": kept}
    Loader().fix_flags(argparse.Namespace())  # a program that embeds TensorBoard


@pytest.mark.parametrize("missing", ["pyarrow", "numpy", "platformdirs", "google.protobuf"])
def test_a_missing_dependency_is_logged_in_one_line(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert Loader().load(base_plugin.TBContext(logdir="/nowhere")) is None
    (record,) = caplog.records
    line = record.getMessage()
    assert missing in line
    assert "pip install" in line
    assert "\n" not in line


@pytest.mark.parametrize("error", [RuntimeError("first line\nsecond line"), ImportError(""), KeyError("x")])
def test_a_plugin_that_cannot_be_created_is_logged_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert Loader().load(base_plugin.TBContext(logdir="/nowhere")) is None
    (record,) = caplog.records
    assert type(error).__name__ in record.getMessage()
    assert "\n" not in record.getMessage()


def test_tensorboard_finds_the_plugin() -> None:
    try:
        distribution = importlib.metadata.distribution("tb-gpudiag")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tb-gpudiag is not installed in this environment")
    (entry_point,) = distribution.entry_points.select(group="tensorboard_plugins")
    assert entry_point.load() is Loader
