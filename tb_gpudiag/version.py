"""The one place of the version, which the build takes from the tag in git."""

from __future__ import annotations

try:
    from tb_gpudiag._version import __version__ as __version__  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # a checkout that was not installed
    __version__ = "0.0"
