"""Bound the number of recordings on disk. Only files that this process wrote are deleted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Final

# Recordings that could not be deleted are tried again, but not without end where deleting is not allowed.
MOST_UNDELETED: Final = 100


class _State(IntEnum):
    """States of a recording. The first one is deleted first."""

    CLEAN = 0  # diagnosed, without findings
    UNKNOWN = 1  # skipped, or could not be diagnosed
    FOUND = 2
    WAITING = 3  # for its diagnosis


class KeptFiles:
    """The recordings of a handler that are on disk, at most `most`. remove(path): deletes one."""

    def __init__(self, most: int, remove: Callable[[str], object] = os.unlink) -> None:
        self._most = most
        self._remove = remove
        self._states: dict[str, _State] = {}  # by path, oldest first
        self._undeleted: list[str] = []
        self._lock = threading.Lock()

    def make_room(self) -> None:
        """Delete recordings until there is room for one more: the least telling first, then the oldest."""
        with self._lock:
            while len(self._states) >= self._most:
                path = min(self._states, key=lambda path: self._states[path])
                del self._states[path]
                self._undeleted.append(path)
            self._undeleted = [path for path in self._undeleted if not self._delete(path)][-MOST_UNDELETED:]

    def _delete(self, path: str) -> bool:
        """Delete a recording. Return False if that failed, as it does while network storage is away."""
        try:
            self._remove(path)
        except FileNotFoundError:  # others have deleted it
            return True
        except OSError:
            return False
        return True

    def add(self, path: str) -> None:
        """Add a recording that waits for its diagnosis."""
        with self._lock:
            self._states[path] = _State.WAITING

    def settle(self, path: str, *, found: bool | None) -> None:
        """Note whether the diagnosis found anything. None: there is no diagnosis."""
        with self._lock:
            if path in self._states:
                self._states[path] = (
                    _State.UNKNOWN if found is None else _State.FOUND if found else _State.CLEAN
                )
