"""Build the frontend into the package. The metadata is in pyproject.toml.

A wheel or sdist is useless without the frontend, so building one runs npm if the frontend is missing, and
fails with one line if it cannot. An sdist contains the built frontend, so installing from it needs no npm. An
editable install (`pip install -e .`) only warns: the Python code works without the tab.

The *.pyx modules are compiled if Cython, a C compiler and Python's headers are there. Without them, reading a
large trace takes several times as long. Those in a wheel use Python's stable ABI, so that one wheel
serves Python 3.11 and later; it has what they need of arrays since 3.11. This costs no measurable time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
FRONTEND = ROOT / "frontend"
PACKAGE = ROOT / "tb_gpudiag"
TYPED = (path for path in PACKAGE.rglob("*.py") if path.with_suffix(".pxd").exists())
COMPILED = sorted(path.relative_to(ROOT) for path in (*PACKAGE.rglob("*.pyx"), *TYPED))
# Cython's code for arrays, which it writes. In each of the modules, it would be nine tenths of them.
SHARED = Path("tb_gpudiag", "trace", "_memoryviews.c")
BUILT_MODULE = ROOT / "tb_gpudiag" / "static" / "index.js"
# Not in a checkout: a module that an older build left there would be imported instead.
STABLE_ABI = (
    "bdist_wheel" in sys.argv
    and sys.version_info >= (3, 11)
    and sys.implementation.name == "cpython"
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)
BUILD_BY_HAND = "cd frontend && npm ci && npm run build"


def build_frontend() -> None:
    """Build tb_gpudiag/static with npm unless it exists. Exit with one line if that fails."""
    if BUILT_MODULE.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            "tb-gpudiag: Node.js 20.19 or newer builds the page, and npm was not found: install it from "
            "https://nodejs.org, or install a wheel that `make wheel` has made on another machine"
        )
    # --no-audit: an audit is a second request to the registry, and hangs for minutes on mirrors without one.
    for arguments in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        if subprocess.run([npm, *arguments], cwd=FRONTEND, check=False).returncode != 0:
            raise SystemExit(f"tb-gpudiag: `npm {' '.join(arguments)}` failed; run: {BUILD_BY_HAND}")
    if not BUILT_MODULE.exists():
        raise SystemExit(f"tb-gpudiag: the frontend build did not write {BUILT_MODULE.relative_to(ROOT)}")


def extensions() -> list[Extension]:
    """Return the compiled modules; none without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules: list[Extension] = cythonize(
        [
            *(Extension(_module(path), [path.as_posix()]) for path in COMPILED),
            Extension(_module(SHARED), [SHARED.as_posix()]),
        ],
        quiet=True,
        shared_utility_qualified_name=_module(SHARED),
    )
    for module in modules:
        module.optional = True  # a compiler that fails or is missing is no error; cythonize drops this
        if sys.platform != "win32":
            module.extra_compile_args = ["-g0"]  # Python's own flags ask for debug information
        if STABLE_ABI:
            module.define_macros = [("Py_LIMITED_API", "0x030B0000")]
            module.py_limited_api = True
    return modules


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


class BuildWithFrontend(build_py):
    def run(self) -> None:
        if not self.editable_mode:
            build_frontend()
        elif not BUILT_MODULE.exists():
            print(f"tb-gpudiag: the tab is not built; to build it, run: {BUILD_BY_HAND}", file=sys.stderr)
        super().run()


class SdistWithFrontend(sdist):
    def run(self) -> None:
        build_frontend()
        super().run()


setup(
    # Here because pyproject.toml has no form of it that setuptools 68 accepts and 77 does not deprecate.
    license="Apache-2.0",
    # Ours, and those of the packages that the frontend's build put into index.js.
    license_files=["LICENSE", "tb_gpudiag/static/licenses.md", "tb_gpudiag/static/font-license.txt"],
    ext_modules=extensions(),
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
    cmdclass={"build_py": BuildWithFrontend, "sdist": SdistWithFrontend},
)
