"""Every error that tb-gpudiag raises on purpose.

    GpudiagError
    ├── TraceError            a file cannot be read as a trace
    │   ├── NotATrace         not JSON, or JSON without trace events; a pickle of something else
    │   ├── Unsafe            a pickle that wants to build objects, and could run anything
    │   ├── EmptyFile         zero bytes (often: still to be written)
    │   ├── TooLarge          a gzip bomb, or past a settable bound
    │   ├── TooDeep           nested beyond what a trace ever is
    │   └── Unreadable        the operating system or the store refused
    ├── NothingToRead         no trace below the path that was named
    ├── UsageError            the caller's arguments do not fit
    └── JobFailed             an analysis process was killed or ran out of its bounds

Each carries what went wrong, where, and what to do, so that the page and the command line say the same.
"""

from __future__ import annotations


class GpudiagError(Exception):
    """Base of all. `what` is one line; `where` a file or argument; `remedy` what the user can do."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = _shown(what)
        self.where = _shown(where)
        self.remedy = _shown(remedy)
        super().__init__(self.what, self.where, self.remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.remedy})" if self.remedy else text


def _shown(text: str) -> str:
    """Text that every output can take: a file's name may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class TraceError(GpudiagError):
    """A file cannot be read as a trace."""


class NotATrace(TraceError):
    """The file is not JSON, or holds no trace events; it is a pickle, and not a memory snapshot's."""


class Unsafe(TraceError):
    """The file is a pickle that would build objects or call functions. None of it was carried out."""


class EmptyFile(TraceError):
    """The file has no bytes."""


class TooLarge(TraceError):
    """The file, or what it unpacks to, is past its bound."""


class TooDeep(TraceError):
    """The JSON is nested deeper than a trace ever is."""


class Unreadable(TraceError):
    """The operating system or the remote store refused the file."""


class NothingToRead(GpudiagError):
    """No trace was found where one was asked for."""


class UsageError(GpudiagError):
    """The caller's arguments do not fit."""


class JobFailed(GpudiagError):
    """An analysis process was killed, or ran out of its bound on time or memory."""
