"""Files that a user drops on the page of `gpudiag serve`. They go into a folder that ends with the server.

They are as untrusted as all traces, and so is whoever sends them: any page that the user visits can send a
request to this machine. Only the page itself knows the token, because no other page can read it.
"""

from __future__ import annotations

import hmac
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from werkzeug import wrappers

from tb_gpudiag.errors import GpudiagError, LimitReached, UsageError
from tb_gpudiag.trace.files.find import find_traces

# Browsers send whole files, and large traces take minutes to read: their users have a path to name.
LARGEST_BYTES: Final = 2 << 30
MOST_BYTES: Final = 8 << 30
LEAST_FREE_BYTES: Final = 1 << 30
"""On the disk, after a file was taken."""
MOST_FILES: Final = 1_000

TOKEN_HEADER: Final = "X-Gpudiag-Drop"  # a header of its own: other pages may not send it

_BLOCK_BYTES: Final = 1 << 20
_HERE: Final = Path(__file__).parent


class DropBox:
    """A log directory that dropped files fill."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gpudiag-dropped-"))
        self._incoming = self._folder / "incoming"
        self.log = self._folder / "log"
        self._incoming.mkdir()
        self.log.mkdir()
        self._token = secrets.token_urlsafe(32)
        self._receiving = threading.Lock()  # one file at a time
        self._bytes = self._files = 0
        self._drops: dict[str, int] = {}  # number by what the page calls it

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_empty(self) -> bool:
        return self._files == 0

    @property
    def head(self) -> str:
        """What a page needs in its head to take dropped files."""
        return (
            f'<meta name="gpudiag-drop" content="{self._token}">\n'
            '<script type="module" src="./drop.js"></script>\n'
        )

    @property
    def page(self) -> str:
        """The page that asks for a file."""
        return (_HERE / "drop.html").read_text(encoding="utf-8").replace("<!-- head -->", self.head)

    @property
    def script(self) -> str:
        return (_HERE / "drop.js").read_text(encoding="utf-8")

    def receive(self, environment: dict[str, Any], start: Callable[..., Any]) -> Any:
        """Take one file: `POST /drop?name=NAME&drop=ID`, with the file as its body.

        Files of one drop are one run.
        """
        request = wrappers.Request(environment)
        sent = request.headers.get(TOKEN_HEADER, "")
        if request.method != "POST" or not hmac.compare_digest(sent.encode(), self._token.encode()):
            return _answer("Only the page itself sends files.", 403)(environment, start)
        try:
            with self._alone():
                self._take(request)
        except LimitReached as error:
            return _answer(str(error), 413)(environment, start)
        except GpudiagError as error:
            return _answer(str(error), 415)(environment, start)
        except OSError as error:
            return _answer(f"The file cannot be kept: {error.strerror}", 507)(environment, start)
        return _answer("taken", 200)(environment, start)

    def _alone(self) -> threading.Lock:
        if self._receiving.locked():
            raise LimitReached("Another file is being sent.", remedy="Try again when it is complete.")
        return self._receiving

    def _take(self, request: wrappers.Request) -> None:
        size = request.content_length
        if size is None or not 0 < size <= LARGEST_BYTES:
            raise LimitReached(
                f"Only files of 1 byte to {LARGEST_BYTES >> 30} GiB are taken here.",
                remedy="For a larger one, run: gpudiag serve PATH",
            )
        free = shutil.disk_usage(self._folder).free
        if self._bytes + size > MOST_BYTES or self._files >= MOST_FILES or free - size < LEAST_FREE_BYTES:
            raise LimitReached(
                "There is no room for more files.", remedy="Start again, or run: gpudiag serve PATH"
            )
        number = self._drops.setdefault(request.args.get("drop", "")[:20], len(self._drops) + 1)
        target = self.log / f"dropped_{number}" / safe_name(request.args.get("name", ""))
        if target.exists():
            raise UsageError("A file with this name was just dropped.")
        arrived = self._incoming / target.name
        try:
            if _written(arrived, request.environ["wsgi.input"], size) != size:
                raise UsageError("The file did not arrive as a whole.", remedy="Drop it again.")
            found = find_traces(str(self._incoming))
            if not found.files:
                problem = found.problems[0] if found.problems else None
                raise problem or UsageError(
                    "This is no trace, memory snapshot or export of Nsight Systems.",
                    remedy="Drop a .pt.trace.json(.gz), .pickle or .sqlite file.",
                )
            target.parent.mkdir(exist_ok=True)
            arrived.replace(target)
        finally:
            arrived.unlink(missing_ok=True)
        self._bytes += size
        self._files += 1


def safe_name(name: str) -> str:
    """Return a name for a file that is a name on every system, and keeps what says which file it is."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return re.sub(r"[^A-Za-z0-9._-]+", "_", last)[-120:].lstrip(".-") or "dropped.json"


def _written(path: Path, stream: IO[bytes], size: int) -> int:
    """Write at most so many bytes of a stream, and return how many there were."""
    written = 0
    with path.open("xb") as file:
        while written < size and (block := stream.read(min(_BLOCK_BYTES, size - written))):
            written += file.write(block)
    return written


def _answer(text: str, code: int) -> wrappers.Response:
    # An unread body would be taken for the next request: close the connection.
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    if code != 200:
        headers["Connection"] = "close"
    return wrappers.Response(text, code, headers, content_type="text/plain; charset=utf-8")
