"""Uploads recordings to a store, on a thread that waits for a process. The training waits for neither."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Final, Literal

from tb_gpudiag.errors import GpudiagError, without_url_secrets
from tb_gpudiag.training import store
from tb_gpudiag.training.helper import Helper, HelperAnswer

# Recordings that wait are on the local disk.
MOST_WAITING: Final = 8
MOST_WAITING_BYTES = 4 << 30

# Attempts in a row, and the pause after the first one. Each pause is twice the one before.
ATTEMPTS: Final = 5
PAUSE_S = 1.0

# The pause after these attempts, unless a new recording comes. Networks are down for minutes.
LONG_PAUSE_S = 300.0

# The helper takes 60 MB.
IDLE_S = 30.0

# For one upload.
TIME_LIMIT_S: Final = 20 * 60.0

EXIT_S: Final = 30.0

logger = logging.getLogger("tb_gpudiag.training")


@dataclass(eq=False)
class _Task:
    """What to do in the store with the file that has the same name as a local one."""

    kind: Literal["put", "remove"]
    path: str
    size_bytes: int = 0
    attempts: int = 0


class Uploads:
    """Recordings on their way from a private temporary folder to a store.

    A local file is deleted when it is uploaded and diagnosed. Recordings that cannot be uploaded are tried
    again, and wait in the folder: a bounded number, the newest ones. Nothing is raised after the constructor,
    except OSError by `folder`.

    Raises:
        ValueError: nothing is installed that writes to this URL.
    """

    def __init__(self, url: str) -> None:
        store.check_store(url)
        self._url = url.rstrip("/")
        self._helper = None if store.lives_in_this_process(url) else Helper("tb_gpudiag.training.store")
        self.lost = 0
        self._told_credentials = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._folder = ""
        self._tasks: list[_Task] = []
        self._doing: _Task | None = None
        self._undiagnosed: set[str] = set()
        self._thread: threading.Thread | None = None
        self._failures = 0  # in a row
        self._failing = False  # and the log says so
        self._not_before_s = 0.0
        self._closing = False
        self._abandoned = False

    def folder(self) -> str:
        """Return the folder to write recordings into. A forked process gets a folder of its own."""
        if os.getpid() != self._pid:
            if self._helper is not None:
                self._helper.forget()
            self._reset()
        if not os.path.isdir(self._folder):
            if not self._folder:
                atexit.register(self._at_exit)
            self._folder = tempfile.mkdtemp(prefix="gpudiag-")
        return self._folder

    def add(self, path: str) -> str:
        """Upload a recording, and keep it until it is diagnosed. Return its URL."""
        task = _Task("put", path, os.path.getsize(path))
        with self._changed:
            self._undiagnosed.add(path)
            self._tasks.append(task)
            dropped = self._over_limit()
            self._wake()
        for one in dropped:
            self.lost += 1
            if self.lost & (self.lost - 1) == 0:  # 1, 2, 4, 8, …
                logger.warning(
                    "gpudiag: too many recordings wait for their upload: %d dropped so far", self.lost
                )
            self._delete_if_done(one.path)
        return self._url_of(path)

    def diagnosed(self, path: str) -> None:
        """Note that no diagnosis needs the local file any more."""
        with self._changed:
            self._undiagnosed.discard(path)
        self._delete_if_done(path)

    def remove(self, path: str) -> None:
        """Remove a recording, both here and in the store."""
        with self._changed:
            self._undiagnosed.discard(path)
            waiting = [task for task in self._tasks if task.path == path and task is not self._doing]
            if waiting:
                self._tasks.remove(waiting[0])
            else:
                self._tasks.append(_Task("remove", path))
                self._wake()
        _delete(path)

    def close(self, timeout_s: float) -> None:
        """Wait for the uploads. Recordings that take too long stay in the folder, and the log says where."""
        if os.getpid() != self._pid or not self._folder or self._thread is threading.current_thread():
            return
        thread = self._thread
        if thread is not None:
            with self._changed:
                self._closing = True
                self._failures, self._not_before_s = (ATTEMPTS - 1 if self._failing else 0), 0.0
                self._changed.notify_all()
            thread.join(timeout_s)
            if thread.is_alive():
                with self._changed:
                    self._abandoned = True
                    self._changed.notify_all()
                if self._helper is not None:
                    self._helper.kill()
                thread.join(1.0)
        with self._changed:
            left = {task.path for task in self._tasks if task.kind == "put"}
            self._tasks.clear()
            self._undiagnosed.clear()
            folder, self._folder = self._folder, ""
        atexit.unregister(self._at_exit)
        self._leave(folder, left)

    def _leave(self, folder: str, left: set[str]) -> None:
        """Delete the folder, except for recordings that are not in the store."""
        if not left:
            shutil.rmtree(folder, ignore_errors=True)
            return
        logger.warning(
            "gpudiag: %s not uploaded to %s: %s in %s",
            "1 recording was" if len(left) == 1 else f"{len(left)} recordings were",
            without_url_secrets(self._url),
            "it is" if len(left) == 1 else "they are",
            folder,
        )
        for name in os.listdir(folder):
            if os.path.join(folder, name) not in left:
                _delete(os.path.join(folder, name))

    def _at_exit(self) -> None:
        self.close(EXIT_S)

    def _url_of(self, path: str) -> str:
        return f"{self._url}/{os.path.basename(path)}"

    def _over_limit(self) -> list[_Task]:
        """If too many recordings wait, remove and return the oldest ones. The lock is held."""
        waiting = [task for task in self._tasks if task.kind == "put" and task is not self._doing]
        size = sum(task.size_bytes for task in waiting)
        dropped: list[_Task] = []
        while len(waiting) > MOST_WAITING or (size > MOST_WAITING_BYTES and len(waiting) > 1):
            dropped.append(waiting.pop(0))
            size -= dropped[-1].size_bytes
            self._tasks.remove(dropped[-1])
        return dropped

    def _wake(self) -> None:
        """Start the thread, or end its long pause. The lock is held."""
        if self._failures >= ATTEMPTS:
            self._failures, self._not_before_s = 0, 0.0
        if self._thread is None:
            self._closing = self._abandoned = False
            self._thread = threading.Thread(target=self._run, name="gpudiag-uploads", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            task = self._next()
            if task is not None:
                self._settle(task, self._ask(task))
                continue
            if self._helper is not None:
                self._helper.stop()
            with self._changed:
                if self._closing or self._abandoned or not self._tasks:
                    self._thread = None
                    return

    def _next(self) -> _Task | None:
        """Wait for a task. None: there was none for a while, or the thread is to end."""
        idle_s = time.monotonic() + IDLE_S
        with self._changed:
            while not self._abandoned:
                now_s = time.monotonic()
                if self._tasks and self._failures < ATTEMPTS and now_s >= self._not_before_s:
                    self._doing = self._tasks[0]
                    return self._doing
                if self._closing and (not self._tasks or self._failures >= ATTEMPTS):
                    return None
                if self._tasks and self._failures >= ATTEMPTS and now_s >= self._not_before_s:
                    self._failures = 0
                    continue
                until_s = self._not_before_s if self._tasks else idle_s
                if now_s >= until_s:
                    return None
                self._changed.wait(until_s - now_s)
        return None

    def _ask(self, task: _Task) -> HelperAnswer:
        request = {"kind": task.kind, "path": task.path, "url": self._url_of(task.path)}
        if self._helper is not None:
            return self._helper.ask(request, TIME_LIMIT_S)
        try:
            return HelperAnswer(True, store.do(request))
        except GpudiagError as error:
            return HelperAnswer(False, error.what)

    def _settle(self, task: _Task, answer: HelperAnswer) -> None:
        """Take a task off the list if it is done. Otherwise, it is tried again after a pause."""
        task.attempts += 1
        done = answer.ok or (task.kind == "put" and not os.path.exists(task.path))  # removed meanwhile
        with self._changed:
            self._doing = None
            if self._abandoned or task not in self._tasks:
                return
            self._tasks.remove(task)
            if done:
                self._failures = 0
            else:
                self._try_again(task)
        if answer.ok and self._failing:
            self._failing = False
            logger.info("gpudiag: %s can be written again", without_url_secrets(self._url))
        elif self._failures >= ATTEMPTS:
            self._give_up_for_now(answer.text)
        if answer.ok and answer.text and not self._told_credentials:
            self._told_credentials = True
            logger.warning("gpudiag: %s See `gpudiag explain GD907`.", answer.text)
        if task.kind == "put":
            self._delete_if_done(task.path)

    def _try_again(self, task: _Task) -> None:
        """Have the task tried again. The lock is held."""
        self._failures += 1
        pause_s = PAUSE_S * 2 ** (self._failures - 1) if self._failures < ATTEMPTS else LONG_PAUSE_S
        self._not_before_s = time.monotonic() + pause_s
        # A store may refuse to remove files: do not try forever.
        if task.kind == "put" or task.attempts < ATTEMPTS:
            self._tasks.append(task)

    def _give_up_for_now(self, reason: str) -> None:
        if self._helper is not None:
            self._helper.stop()  # a new process reads credentials again
        if self._failing:  # the log says so already
            return
        self._failing = True
        logger.warning(
            "gpudiag: %s could not be written: %s. Up to %d recordings wait in %s for another attempt.",
            without_url_secrets(self._url),
            reason,
            MOST_WAITING,
            self._folder,
        )

    def _delete_if_done(self, path: str) -> None:
        """Delete a local file if neither a diagnosis nor an upload needs it."""
        with self._changed:
            if path in self._undiagnosed or any(
                task.path == path and task.kind == "put" for task in self._tasks
            ):
                return
        _delete(path)


def _delete(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
