"""Directories that TensorBoard watches, the names of their runs, and those of them that are in stores."""

from __future__ import annotations

import os
import posixpath
import threading
import time
from collections.abc import Callable
from typing import Final

from tb_gpudiag.errors import GpudiagError, Unreadable, without_url_secrets
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.find import Found, parse_logdir_spec


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


# Listings take at most this share of the time, because stores charge for each call. But a listing that was
# slow because calls were repeated must not delay the next one for minutes.
SHARE_OF_TIME = 0.1
MOST_PAUSE_S = 30.0

# The pause after a listing that failed.
RETRY_S = 10.0

# If a listing takes longer, the page shows it as a problem.
SLOW_S = 10.0

# A listing thread is abandoned after this long. By then, calls have reached their own time limits.
ABANDONED_AFTER_S = 900.0

AGAIN: Final = "it is asked again until it answers"


class RemoteRoot:
    """One log directory in a store, and its last listing. `wake` is called after each listing.

    `ask` and `found` belong to one thread.
    """

    def __init__(
        self,
        url: str,
        find: Callable[[str], Found],
        wake: Callable[[], None],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._find = find
        self._wake = wake
        self._monotonic_s = monotonic_s
        self._ended = threading.Event()  # set when the last listing that was begun has ended
        self._ended.set()
        self._began_s = 0.0
        self._next_s = float("-inf")
        self._last = Found()  # the last listing that succeeded
        self._answered = False
        self._problems: list[GpudiagError] = []

    def ask(self) -> None:
        """Begin to list the directory, if it is time to."""
        now_s = self._monotonic_s()
        under_way = not self._ended.is_set() and now_s - self._began_s < ABANDONED_AFTER_S
        if under_way or now_s < self._next_s:
            return
        self._began_s, self._ended = now_s, threading.Event()
        # Daemon: a store that hangs must not prevent the process from ending.
        threading.Thread(target=self._list, args=(self._ended,), name="gpudiag-store", daemon=True).start()

    def wait(self, at_most_s: float) -> None:
        """Wait for the end of the listing that is under way."""
        self._ended.wait(at_most_s)

    def found(self) -> Found:
        """Return the last listing. Its problems say if the store no longer answers."""
        problems = self._problems
        if not self._ended.is_set() and self._monotonic_s() - self._began_s >= SLOW_S:
            silent = Unreadable("the store does not answer", where=self._url, remedy="check the connection")
            problems = [self._lost(silent)]
        elif not self._ended.is_set() and not self._answered and not problems:
            problems = [Unreadable("the store has not answered yet", where=self._url, remedy=AGAIN)]
        return Found(self._last.files, problems)

    def _list(self, ended: threading.Event) -> None:
        began_s = self._monotonic_s()
        try:
            found = self._find(self._url)
        except GpudiagError as error:
            found = Found(problems=[error], lost=True)
        except Exception as error:  # a bug, or an unexpected error of a back end
            what = f"the store cannot be listed: {type(error).__name__}"
            found = Found(problems=[Unreadable(what, where=self._url)], lost=True)
        if ended is not self._ended:  # abandoned: another listing has begun
            return
        now_s = self._monotonic_s()
        if found.lost:
            self._problems = [self._lost(problem) for problem in found.problems]
            self._next_s = now_s + RETRY_S
        else:
            self._last, self._problems, self._answered = found, found.problems, True
            self._next_s = now_s + min((now_s - began_s) / SHARE_OF_TIME, MOST_PAUSE_S)
        ended.set()
        self._wake()

    def _lost(self, problem: GpudiagError) -> GpudiagError:
        """Return the problem with what the page still shows and what happens next."""
        what = f"{problem.what.rstrip('.')}. The list is from before" if self._answered else problem.what
        remedy = f"{problem.remedy}; {AGAIN}" if problem.remedy else AGAIN
        return Unreadable(what, where=self._url, remedy=remedy)
