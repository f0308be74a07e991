"""All errors that tb-gpudiag raises on purpose.

    GpudiagError
    ├── TraceError            a file cannot be read
    │   ├── NotATrace         not JSON, another program's trace, or a pickle that is not a memory snapshot
    │   ├── Unsafe            a pickle that builds objects: it could run anything
    │   ├── EmptyFile         zero bytes, often because it is still being written
    │   ├── TooLarge          a gzip bomb, or larger than a limit that can be raised
    │   ├── TooDeep           JSON nested deeper than any trace
    │   └── Unreadable        an error of the operating system or the remote store
    │       ├── LinksNotFollowed  links lead outside the log directory
    │       └── NoAnswer          a remote store does not answer, or fails for now
    ├── NothingToRead         no trace at the path given
    ├── UsageError            invalid arguments
    ├── ProcessFailed         a process of this package was killed or could not start
    ├── LimitReached          an analysis reached its limit of time or memory
    ├── CorruptEntry          a cached result is gone or damaged
    └── Defect                a bug in gpudiag

Each error says what happened, where, and what to do, so that the tab and the command line show the same text.
"""

from __future__ import annotations

import errno
import os
import re
import traceback

# A URL may have a user and a password before its host, and a signature in its query. In a URL of Azure, there
# is a container, unless it has a colon.
_USER_OF_URL = re.compile(
    r"(?<=://)(?:(?<!\babfs://)(?<!\babfss://)(?<!\baz://)|(?=[^\s/@'\"<>]*:))([^\s/@'\"<>]*)@"
)
# It matches a URL without a query, too: so no part of it is looked at from a second start.
_QUERY_OF_URL = re.compile(r"(://[^\s?'\"<>]*)(?:\?([^\s'\"<>]*))?")


class GpudiagError(Exception):
    """Base of all errors. `what` happened, in one line; `where`, a file or argument; `remedy`, what to do."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = _shown(what)
        self.where = _shown(where)
        self.remedy = _shown(remedy)
        super().__init__(self.what, self.where, self.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.what, self.where, self.remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.remedy})" if self.remedy else text


def _restored(kind: type[GpudiagError], what: str, where: str, remedy: str) -> GpudiagError:
    """Make the error again, in another process."""
    return kind(what, where=where, remedy=remedy)


def _shown(text: str) -> str:
    """Make text that any output accepts: a file name may contain bytes that are not text."""
    return without_url_secrets(text).encode("utf-8", "backslashreplace").decode("utf-8")


def without_url_secrets(text: str) -> str:
    """Return a text with its URLs cut to what identifies a file: no user, no password, no query."""
    if "://" not in text:
        return text
    return _QUERY_OF_URL.sub(r"\1", _USER_OF_URL.sub("", text))


def url_secrets(url: str) -> list[str]:
    """Return what `without_url_secrets` leaves out of a URL."""
    found = [*(user[1] for user in _USER_OF_URL.finditer(url)), *(q[2] for q in _QUERY_OF_URL.finditer(url))]
    return [secret for secret in found if secret]


class TraceError(GpudiagError):
    """The file cannot be read."""


class NotATrace(TraceError):
    """The file is not JSON, has no trace events of torch.profiler, or is a pickle of something else."""


class Unsafe(TraceError):
    """The file is a pickle that builds objects or calls functions. None of it was run."""


class EmptyFile(TraceError):
    """The file has no bytes."""


class TooLarge(TraceError):
    """The file, or what it unpacks to, is larger than a limit."""


class TooDeep(TraceError):
    """The JSON is nested deeper than any trace."""


class Unreadable(TraceError):
    """The operating system or the remote store cannot read the file."""


class LinksNotFollowed(Unreadable):
    """Links lead outside the log directory. Everything else in it was read."""


class NoAnswer(Unreadable):
    """A remote store does not answer, or fails for now. The same may succeed later."""


class NothingToRead(GpudiagError):
    """There is no trace at the path given."""


class UsageError(GpudiagError):
    """The arguments are invalid."""


class ProcessFailed(GpudiagError):
    """A process of this package was killed, or could not start or save its result."""


class LimitReached(GpudiagError):
    """An analysis reached its limit of time or memory."""


class CorruptEntry(GpudiagError):
    """A cached result is gone or damaged, or somebody else wrote it."""

    @classmethod
    def at(cls, path: object) -> CorruptEntry:
        return cls("the cached result is gone or damaged", where=str(path))


class Defect(GpudiagError):
    """A bug in gpudiag."""

    @classmethod
    def of(cls, error: Exception, *, where: str = "", remedy: str = "") -> Defect:
        """Name the bug by its place in the code: the exception's message may quote the trace."""
        return cls(
            f"The analysis failed because of a bug in gpudiag: {place_of(error)}.", where=where, remedy=remedy
        )


def place_of(error: Exception) -> str:
    """Return the kind of an exception and its place in the code."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} in {place}"


def used_up(error: BaseException, *, where: str, limit_bytes: int = 0) -> LimitReached | None:
    """Return the error for a file where this one, or one that it comes from, says that memory, processes or
    threads are used up; None where none says so. limit_bytes: see out_of_memory."""
    seen: BaseException | None = error
    while seen is not None:
        number = seen.errno if isinstance(seen, OSError) else None
        if isinstance(seen, MemoryError) or number == errno.ENOMEM:
            return out_of_memory(limit_bytes, where)
        if str(seen) == _NO_THREAD or number == errno.EAGAIN:
            return LimitReached(
                "No more processes or threads can be started.",
                where=where,
                remedy="Close other programs, or raise the limit: ulimit -u, or that of the container.",
            )
        seen = seen.__cause__ or seen.__context__
    return None


def out_of_memory(limit_bytes: int, where: str) -> LimitReached:
    """Return the error for a file that took more than the limit, or, for 0, than the machine has."""
    if limit_bytes:
        return LimitReached(
            f"The analysis was stopped at its memory limit of {limit_bytes >> 20} MB.",
            where=where,
            remedy="Record fewer steps, or increase GPUDIAG_MEMORY_LIMIT_MB.",
        )
    return LimitReached(
        "There is not enough memory.",
        where=where,
        remedy="Close other programs, raise the limit of this process (ulimit), or record fewer steps.",
    )


# A RuntimeError of Python, which has no class of its own for it.
_NO_THREAD = "can't start new thread"
