"""Log directories from the flags of TensorBoard, and settings from the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs
import pytest

from tb_gpudiag.service.index.roots import Root, roots_from
from tb_gpudiag.service.settings import MIB, machine_memory_bytes, settings_from
from tests.with_each import with_each


def test_a_logdir_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert roots_from("runs", None) == [Root(str(tmp_path / "runs"))]
    assert roots_from("~/runs", None) == [Root("/home/someone/runs")]
    assert roots_from("/a/../runs/", None) == [Root("/runs")]


def test_a_url_is_not_changed() -> None:
    assert roots_from("s3://bucket/runs", None) == [Root("s3://bucket/runs")]


def test_a_spec_names_its_runs_as_tensorboard_does() -> None:
    roots = roots_from("", "a:/one,b:/two")
    assert [(root.path, root.run("."), root.run("x/y")) for root in roots] == [
        ("/one", "a", "a/x/y"),
        ("/two", "b", "b/x/y"),
    ]


def test_several_directories_without_names_are_named_by_their_paths() -> None:
    assert [root.run(".") for root in roots_from("", "/one")] == ["."]
    assert [root.run("x") for root in roots_from("", "/one,/two")] == ["/one/x", "/two/x"]


@with_each(("logdir", "spec"), [(None, None), ("", ""), ("", None)])
def test_nothing_to_watch_is_not_an_error(logdir: str | None, spec: str | None) -> None:
    assert roots_from(logdir, spec) == []


def test_the_environment_sets_the_limits() -> None:
    settings = settings_from(
        {
            "GPUDIAG_CACHE_DIR": "/cache",
            "GPUDIAG_CACHE_MB": "10",
            "GPUDIAG_TIME_LIMIT_S": "1.5",
            "GPUDIAG_MEMORY_LIMIT_MB": "300",
        }
    )
    assert settings.cache_directory == Path("/cache")
    assert settings.cache_bytes == 10 * MIB
    assert settings.time_limit_s == 1.5
    assert settings.memory_limit_bytes == 300 * MIB


@with_each("text", ["", "0", "-1", "nan", "inf", "many"])
def test_a_limit_that_is_not_positive_is_the_default(text: str) -> None:
    names = ("GPUDIAG_CACHE_MB", "GPUDIAG_TIME_LIMIT_S", "GPUDIAG_MEMORY_LIMIT_MB")
    assert settings_from(dict.fromkeys(names, text)) == settings_from({})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory, without XDG_CACHE_HOME."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="where Linux keeps caches")


@on_linux
def test_the_cache_is_in_the_home_directory(home: Path) -> None:
    assert settings_from({}).cache_directory == home / ".cache" / "gpudiag"


@on_linux
def test_xdg_cache_home_moves_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert settings_from({}).cache_directory == Path("/xdg/gpudiag")


@on_linux
def test_a_relative_xdg_cache_home_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    # None: platformdirs before 4.11.8
    assert settings_from({}).cache_directory in (home / ".cache" / "gpudiag", None)


def test_gpudiag_cache_dir_comes_before_all_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert settings_from({"GPUDIAG_CACHE_DIR": "/mine"}).cache_directory == Path("/mine")
    assert settings_from({"GPUDIAG_CACHE_DIR": "~/mine"}).cache_directory == home / "mine"


def test_without_a_home_directory_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    assert settings_from({}).cache_directory is None


def test_two_analyses_leave_memory_to_other_programs() -> None:
    assert 0 < 2 * settings_from({}).memory_limit_bytes < machine_memory_bytes() <= _physical_bytes()


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
