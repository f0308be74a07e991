"""Build of tb-gpudiag: a Python package that carries its built frontend.

A wheel or an sdist without the frontend is of no use, so building one builds the frontend with npm when it
is missing, and fails with one line where that cannot be done. An sdist carries the built frontend: installing
from it needs no npm. An editable install (`pip install -e .`) only warns: Python can be worked on without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
FRONTEND = ROOT / "frontend"
BUILT_MODULE = ROOT / "tb_gpudiag" / "static" / "index.js"
BUILD_BY_HAND = "cd frontend && npm ci && npm run build"


def version() -> str:
    """What tb_gpudiag/version.py says, read as text: the package cannot be imported while it is built."""
    text = (ROOT / "tb_gpudiag" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("setup.py: tb_gpudiag/version.py holds no __version__")
    return found.group(1)


def build_frontend() -> None:
    """Puts the built frontend into tb_gpudiag/static unless it is there; ends the build where it cannot."""
    if BUILT_MODULE.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(f"tb-gpudiag: the frontend is not built and there is no npm; run: {BUILD_BY_HAND}")
    # An audit asks the registry a second time, and waits for minutes where a mirror does not answer it.
    for arguments in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        if subprocess.run([npm, *arguments], cwd=FRONTEND, check=False).returncode != 0:
            raise SystemExit(f"tb-gpudiag: `npm {' '.join(arguments)}` failed; run: {BUILD_BY_HAND}")
    if not BUILT_MODULE.exists():
        raise SystemExit(f"tb-gpudiag: the frontend's build left no {BUILT_MODULE.relative_to(ROOT)}")


class BuildWithFrontend(build_py):
    def run(self) -> None:
        if not self.editable_mode:
            build_frontend()
        elif not BUILT_MODULE.exists():
            print(f"tb-gpudiag: the tab is not built; for it, run: {BUILD_BY_HAND}", file=sys.stderr)
        super().run()


class SdistWithFrontend(sdist):
    def run(self) -> None:
        build_frontend()
        super().run()


setup(
    name="tb-gpudiag",
    version=version(),
    description="Says in TensorBoard where a PyTorch job's GPU time and memory went, and what to fix first",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["pytorch", "profiler", "tensorboard", "gpu", "performance", "memory"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Environment :: Web Environment",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Debuggers",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["tb_gpudiag", "tb_gpudiag.*"]),
    package_data={"tb_gpudiag": ["py.typed", "rules/*/*.md", "report/*.proto", "report/*.pyi", "static/**"]},
    include_package_data=False,
    zip_safe=False,
    python_requires=">=3.10",
    install_requires=[
        "tensorboard>=2.16",  # earlier ones refuse protobuf 4.25
        "werkzeug>=2.0",
        "markupsafe>=2.0",
        "protobuf>=4.25",
        "duckdb>=1.2",
        "pyarrow>=14",
        "numpy>=1.24",
        "fsspec>=2023.6",
        "rich>=13",
    ],
    extras_require={
        "torch": ["torch>=2.0"],
        "s3": ["s3fs"],
        "gcs": ["gcsfs"],
        "dask": ["dask", "distributed"],
        "dev": [
            "build",
            "hypothesis",
            "markdown-it-py",
            "mypy",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "setuptools>=68",
            "types-protobuf",
            "wheel",
        ],
    },
    entry_points={
        "tensorboard_plugins": ["gpudiag = tb_gpudiag.loader:Loader"],
        "console_scripts": ["gpudiag = tb_gpudiag.cli.main:main"],
    },
    cmdclass={"build_py": BuildWithFrontend, "sdist": SdistWithFrontend},
)
