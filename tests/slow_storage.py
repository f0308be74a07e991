"""Slow storage: in a Python process, each call of the operating system below a folder takes a while."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

_SITE = """
import builtins, io, os, time

FOLDER, SECONDS = {folder!r}, {seconds!r}


def pause(path):
    try:
        name = os.fspath(path)
    except TypeError:  # a descriptor
        return
    if isinstance(name, str) and (name == FOLDER or name.startswith(FOLDER + os.sep)):
        time.sleep(SECONDS)


def slowed(real):
    def call(path, *arguments, **options):
        pause(path)
        return real(path, *arguments, **options)

    return call


class Entry:
    def __init__(self, entry):
        self._entry, self.name, self.path = entry, entry.name, entry.path

    def __fspath__(self):
        return self.path

    def stat(self, **options):
        pause(self.path)
        return self._entry.stat(**options)

    def __getattr__(self, name):  # is_dir and others: known from the list
        return getattr(self._entry, name)


class Listed:
    def __init__(self, entries):
        self._entries = entries

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._entries.close()

    def __iter__(self):
        return map(Entry, self._entries)

    def __next__(self):
        return Entry(next(self._entries))

    def close(self):
        self._entries.close()


scandir = slowed(os.scandir)
os.scandir = lambda path=".": Listed(scandir(path))
for name in ("stat", "lstat", "listdir", "replace", "unlink"):
    setattr(os, name, slowed(getattr(os, name)))
real_open = os.open
os.open = slowed(real_open)
for name in ("supports_dir_fd", "supports_follow_symlinks", "supports_fd"):
    supported = getattr(os, name)
    supported.update(getattr(os, wrapped) for wrapped in ("stat", "lstat", "open", "listdir", "unlink"))
builtins.open = io.open = slowed(io.open)
"""


def slow_python_path(site: Path, folder: Path, seconds: float, before: str = "") -> str:
    """Return a PYTHONPATH with which calls below a folder take so long. site: a new folder for that."""
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        textwrap.dedent(_SITE).format(folder=str(folder), seconds=seconds), encoding="utf-8"
    )
    return os.pathsep.join(filter(None, [str(site), before]))
