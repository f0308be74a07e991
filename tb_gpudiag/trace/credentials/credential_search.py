"""Search a file for credentials in a thread of its own, while others parse it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from tb_gpudiag.trace.credentials.removing import CredentialFilter

# Blocks that may wait for the search.
_BLOCKS_BEHIND: Final = 4


class CredentialSearch:
    """Searches the blocks that pass through it. At the end of `with`, it drops what is not searched yet."""

    def __init__(self) -> None:
        self._filter = CredentialFilter(bounded=True)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gpudiag-search")
        self._pending: deque[Future[None]] = deque()

    def through(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the blocks, and search each one meanwhile."""
        for block in blocks:
            if len(self._pending) == _BLOCKS_BEHIND:
                self._pending.popleft().result()
            self._pending.append(self._pool.submit(self._filter.search, block))
            yield block

    def finish(self) -> CredentialFilter:
        """Return what was found in the blocks so far, which are the last."""
        while self._pending:
            self._pending.popleft().result()
        self._filter.end()
        return self._filter

    def __enter__(self) -> CredentialSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
