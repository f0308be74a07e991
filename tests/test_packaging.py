"""The sdist and the wheel that users install, built from a copy of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".make", "node_modules", "__pycache__", ".*_cache", "*.egg-info", "build", "dist", "log"
)
BUILT_MODULE = Path("tb_gpudiag/static/index.js")


def copy_of_checkout(to: Path) -> Path:
    """Copy the checkout, with its built frontend or a stub: these tests are about packaging."""
    shutil.copytree(REPOSITORY, to, ignore=NOT_COPIED)
    if not (to / BUILT_MODULE).exists():
        (to / BUILT_MODULE).parent.mkdir(parents=True, exist_ok=True)
        (to / BUILT_MODULE).write_text("export function render() {}\n")
    return to


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def build(program: str, source: Path, out: Path, *, cython: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program in `source` that builds with `backend` into the folder `out`.

    Without npm on the path, so that the frontend cannot be rebuilt. Without Cython, or with a compiler that
    fails: the modules that they would make are optional, and take most of the time.
    """
    out.mkdir()
    start = f"from setuptools import build_meta as backend\nout = {str(out)!r}\n"
    if not cython:
        start = f"import sys\nsys.modules['Cython'] = None\n{start}"
    path = str(Path(sys.executable).parent)
    return run(sys.executable, "-c", start + program, cwd=source, PATH=path, CC="false")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_checkout(tmp_path_factory.mktemp("sdist") / "checkout")


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    build("backend.build_sdist(out)", checkout, checkout.with_name("out"))
    (made,) = checkout.with_name("out").glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel built from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data") if sys.version_info >= (3, 12) else archive.extractall(
            folder
        )
    (source,) = (child for child in folder.iterdir() if child.is_dir())
    for generated in REPOSITORY.glob("tb_gpudiag/**/*.c"):  # Cython takes seconds to write them again
        shutil.copy(generated, source / generated.relative_to(REPOSITORY))
    build("backend.build_wheel(out)", source, folder / "out", cython=True)
    (made,) = (folder / "out").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of a fresh environment with the wheel installed. Everything else comes from this environment."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python, here = folder / "bin" / "python", sysconfig.get_path("purelib")
    offline = ("--no-deps", "--no-index", "--no-compile", "--ignore-installed")
    run(python, "-m", "pip", "install", *offline, wheel, cwd=folder, PYTHONPATH=here)
    (package,) = folder.rglob("site-packages/tb_gpudiag")
    package.with_name("dependencies.pth").write_text(f"{here}\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def without_frontend(
    checkout: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.CompletedProcess[str]]:
    """All kinds of builds without frontend and npm, in the checkout of the sdist, after that is built."""
    out = tmp_path_factory.mktemp("without_frontend") / "out"
    away = (checkout / BUILT_MODULE.parent).rename(checkout.with_name("away"))
    yield build(
        "for build in (backend.build_wheel, backend.build_sdist):\n"
        "    try:\n        build(out)\n"
        "    except SystemExit as refused:\n        print(f'{build.__name__} exits: {refused}')\n"
        "print(backend.build_editable(out))\n",
        checkout,
        out,
    )
    away.rename(checkout / BUILT_MODULE.parent)


def test_the_sdist_contains_the_built_frontend_and_its_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert str(BUILT_MODULE) in names
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml", "frontend/package-lock.json"} <= names
    assert {"tests/builder/story.py", "demo/input_pipeline.py", "tb_gpudiag/trace/kineto/_scan.pyx"} <= names
    assert not any("node_modules" in name or name.startswith(".git") for name in names)


def test_the_wheel_contains_every_file_the_package_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = REPOSITORY / "tb_gpudiag"
    wanted = [*package.rglob("*.py"), *package.rglob("*.md"), *package.rglob("*.proto"), package / "py.typed"]
    built = (REPOSITORY / BUILT_MODULE.parent).rglob("*")
    wanted += [file for file in built if file.is_file()]
    wanted += (package / "report" / "views" / "templates").iterdir()
    wanted += [*(package / "pages").glob("drop.*"), *(package / "demo_log").rglob("*.gz")]
    assert {str(file.relative_to(REPOSITORY)) for file in wanted} <= names
    assert str(BUILT_MODULE) in names


def test_the_wheel_contains_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        roots = {name.partition("/")[0] for name in archive.namelist()}
        assert not any("__pycache__" in name for name in archive.namelist())
    assert {root for root in roots if not root.endswith(".dist-info")} == {"tb_gpudiag"}


def test_the_wheel_carries_the_licenses_of_what_is_bundled(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        lists = [name for name in names if name.endswith("licenses.md")]
        if not lists:
            pytest.skip("the frontend is not built")
        text = archive.read(f"{BUILT_MODULE.parent}/licenses.md").decode()
    (info,) = {name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA")}
    assert any(name.startswith(f"{info}/") for name in lists)
    assert any(name.startswith(f"{info}/") and name.endswith("font-license.txt") for name in names)
    package = json.loads((REPOSITORY / "frontend" / "package.json").read_text(encoding="utf-8"))
    licenses = dict(section.split(" - ", 1) for section in text.split("\n## ")[1:])
    assert set(package["dependencies"]) <= set(licenses)
    for name, license_text in licenses.items():
        assert "Permission" in license_text or "Redistribution" in license_text, name


@pytest.mark.parametrize("command", ["gpudiag", "tb-gpudiag"])
def test_the_installed_command_explains_a_rule(installed: Path, command: str) -> None:
    page = run(installed / command, "explain", "GD101", cwd=installed).stdout
    assert "GD101" in page
    assert "Fix" in page


def test_the_installed_entry_point_is_what_tensorboard_loads(installed: Path) -> None:
    program = (
        "from importlib.metadata import entry_points\n"
        "from tensorboard.plugins.base_plugin import TBLoader\n"
        "import tb_gpudiag\n"
        "(point,) = entry_points(group='tensorboard_plugins', name='gpudiag')\n"
        "assert issubclass(point.load(), TBLoader)\n"
        "print(tb_gpudiag.__file__)\n"
    )
    place = run(installed / "python", "-c", program, cwd=installed).stdout
    assert str(installed.parent) in place


def test_a_build_without_frontend_and_npm_prints_one_line_with_the_command(
    without_frontend: subprocess.CompletedProcess[str],
) -> None:
    said = [line for line in without_frontend.stdout.splitlines() if "npm was not found" in line]
    assert [line.partition(" exits: ")[0] for line in said] == ["build_wheel", "build_sdist"]


def test_an_editable_install_without_frontend_only_warns(
    without_frontend: subprocess.CompletedProcess[str],
) -> None:
    assert without_frontend.stderr.count("npm ci && npm run build") == 1
    assert without_frontend.stdout.splitlines()[-1].endswith(".whl")
