"""Which directories TensorBoard was asked to watch, and what their runs are called."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.trace.find import parse_logdir_spec


@dataclass(frozen=True)
class Root:
    """One log directory (or file, or fsspec URL). `prefix` goes before the names of its runs; often it is
    empty."""

    path: str
    prefix: str = ""

    def run(self, found: str) -> str:
        """The name of a run that was found below this root: as TensorBoard names it."""
        if not self.prefix:
            return found
        return self.prefix if found in ("", ".") else posixpath.join(self.prefix, found)


def roots_from(logdir: str | None, logdir_spec: str | None) -> list[Root]:
    """The roots of `--logdir`, or else of `--logdir_spec`; none where neither is given or the spec cannot be
    read.

    Paths are made absolute here, once: TensorBoard hands them over raw, and its working directory may change.
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
    # One directory without a name needs none; several would all have a run ".", so there the path is the
    # name.
    return [Root(path, name or (path if unnamed > 1 else "")) for name, path in paths]


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    return os.path.abspath(os.path.expanduser(path))
