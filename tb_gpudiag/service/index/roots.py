"""Directories that TensorBoard watches, and the names of their runs."""

from __future__ import annotations

import os
import posixpath

from tb_gpudiag.errors import GpudiagError, without_url_secrets
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.find import parse_logdir_spec


@dataclass(frozen=True)
class Root:
    """A log directory, file or fsspec URL. `prefix`, which may be empty, precedes the names of its runs."""

    path: str
    prefix: str = ""

    def run(self, found: str) -> str:
        """Return the name that TensorBoard gives to a run found below this root."""
        if not self.prefix:
            return found
        return self.prefix if found in ("", ".") else posixpath.join(self.prefix, found)


def roots_from(logdir: str | None, logdir_spec: str | None) -> list[Root]:
    """Return the roots of `--logdir`, or else of `--logdir_spec`; none if both are missing or invalid.

    Paths are made absolute here: TensorBoard passes them as they are, and its working directory may change.
    """
    if logdir:
        return [Root(_absolute(logdir))]
    if not logdir_spec:
        return []
    try:
        named = parse_logdir_spec(logdir_spec)
    except GpudiagError:
        return []
    paths = [(name, _absolute(path)) for name, path in named]
    unnamed = sum(1 for name, _ in paths if not name)
    # A single directory without a name needs no prefix. Several would each have a run ".", so their paths are
    # their names.
    return [Root(path, name or (without_url_secrets(path) if unnamed > 1 else "")) for name, path in paths]


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    return os.path.abspath(os.path.expanduser(path))
