"""Remove credentials: from the bytes of a file, and from what a reader made of one; and search a file in a
thread of its own, while others parse it.

RE2 passes over text in which no credential can start. Around the rest, which is a hundredth of a real trace,
Python's expressions look.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.trace.credentials.find_credentials import FoundCredential, find
from tb_gpudiag.vocabulary.credential_forms import MARK, candidates, is_credential, kind_of_name
from tb_gpudiag.vocabulary.recorded import Credential

Product = TypeVar("Product")

MOST_COUNTED: Final = 10_000
"""With this many, a file that is only read is not searched any further."""

_MARK: Final = MARK.encode("ascii")
# RE2 is set up for this much at a time. It looks at parts between two events, and in those that may have a
# credential, at windows of this size, and this far beyond their borders.
_AT_ONCE_BYTES: Final = 4 << 20
_FIRST_LOOK_BYTES: Final = 32 << 10
_CUT: Final = b"}"
_WINDOW_BYTES: Final = 512
_BORDER_BYTES: Final = 128
# Below this, Python's expressions are done sooner than RE2 is set up.
_SHORT_BYTES: Final = 4 << 10
# So much of the text before a place says what it is, and so much after it. Of a longer value,
# the start is removed.
_BACK_BYTES: Final = 256
_REACH_BYTES: Final = 32 << 10
# Where others wait for the result, Python's expressions look at this much, and at this share of the text.
# They take 0.5 µs a byte, and up to ten times as long where every word could announce a credential.
_LEAST_LOOKED_AT_BYTES: Final = 512 << 10
_SHARE_LOOKED_AT: Final = 0.02
# More different names than this are counted together.
_MOST_NAMES: Final = 1_000


class CredentialFilter:
    """Passes text on without the credentials in it. `found` counts them."""

    def __init__(self, *, bounded: bool = False) -> None:
        """bounded: look only as long as others can wait. A text can be made of nothing but words that might
        announce a credential."""
        self.found: Counter[Credential] = Counter()
        self.unsearched_bytes = 0  # text that was not searched because of that bound
        self._bounded = bounded
        self._passes_on = True
        self._seen_bytes = self._looked_at_bytes = 0
        self._text = b""
        self._at = 0  # everything before it has been passed on or dropped
        self._blocks: list[bytes] = []  # follow the text
        self._waiting_bytes = 0  # in the blocks

    def feed(self, block: bytes) -> bytes:
        """Take the next block. Return what can be passed on by now."""
        self._blocks.append(block)
        size = len(block)
        self._seen_bytes += size
        self._waiting_bytes += size
        return self._pass_on(_REACH_BYTES) if self._waiting_bytes >= _AT_ONCE_BYTES else b""

    def search(self, block: bytes) -> None:
        """Take the next block, and pass nothing on."""
        self._passes_on = False
        self.feed(block)

    def end(self) -> bytes:
        """Return the rest, after the last block."""
        return self._pass_on(0)

    def clean(self, text: bytes) -> bytes:
        """Return a whole text without its credentials; only the mark, if there is too much to look at."""
        unsearched = self.unsearched_bytes
        cleaned = self.feed(text) + self.end()
        self._text, self._at = b"", 0
        return cleaned if self.unsearched_bytes == unsearched else _MARK

    def _pass_on(self, later: int) -> bytes:
        """later: so many of the last bytes are searched with the next block."""
        text, at, pieces = b"".join((self._text, *self._blocks)), self._at, list[bytes]()
        stop = len(text) - later
        self._blocks.clear()
        self._waiting_bytes = 0
        for begin, end in _regions(text, at, stop) if not self._is_full() else ():
            if not self._may_look_at(end - begin):
                continue
            before = max(0, begin - _BACK_BYTES)
            for found in find(text[before : end + _REACH_BYTES], end - before):
                if before + found.start >= at:
                    pieces += (text[at : before + found.start], _MARK)
                    at = before + found.end
                    self._count(found)
        if self._passes_on:
            pieces.append(text[at : max(at, stop)])
        kept = max(0, max(at, stop) - _BACK_BYTES)
        self._text, self._at = text[kept:], max(at, stop) - kept
        return b"".join(pieces)

    def _is_full(self) -> bool:
        return self._bounded and self.found.total() >= MOST_COUNTED

    def _may_look_at(self, size: int) -> bool:
        if self._bounded:
            most = _LEAST_LOOKED_AT_BYTES + self._seen_bytes * _SHARE_LOOKED_AT
            if self._looked_at_bytes + size > most:
                self.unsearched_bytes += size
                return False
            self._looked_at_bytes += size
        return True

    def _count(self, found: FoundCredential) -> None:
        credential = Credential(_shown(found.name.lstrip("-")), found.form)
        if credential not in self.found and len(self.found) >= _MOST_NAMES:
            credential = Credential("", "")
        self.found[credential] += 1


def without_credentials(text: bytes) -> bytes:
    """Return a text without the credentials in it; only the mark, if there is too much to look at."""
    return CredentialFilter(bounded=True).clean(text)


def cleaned(product: Product) -> Product:
    """Return what a reader made of a file without the credentials in any of its texts, wherever they are: in
    dataclasses, tuples, lists and dictionaries, as keys and values.

    No view, log or cache may show credentials, so every reader's result passes through here. A value in a
    dictionary whose key announces a credential is one, too.
    """
    found = _Texts()
    found.collect(product)
    removed = _removed(list(found.texts)) | dict.fromkeys(found.named, MARK)
    return _replaced(product, removed) if removed else product


class _Texts:
    """The texts in a value. named: those that the key of a dictionary announces as credentials."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.named: set[str] = set()
        self._seen: set[int] = set()  # parts: ranks share their groups, which may have 300,000 members

    def collect(self, value: Any) -> None:
        if isinstance(value, str):
            self.texts.add(value)
        elif isinstance(value, (int, float, np.ndarray)) or id(value) in self._seen:
            return
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if (
                    isinstance(key, str)
                    and isinstance(inner, str)
                    and is_credential(inner, kind_of_name(key))
                ):
                    self.named.add(inner)
                self.collect(key)
                self.collect(inner)
        elif isinstance(value, list | tuple | set | frozenset):
            self._seen.add(id(value))
            for inner in value:
                self.collect(inner)
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                self.collect(getattr(value, field.name))


def _removed(texts: list[str]) -> dict[str, str]:
    """Return the texts that have credentials, each with what is left of it."""
    coded = [text.encode("utf-8", "surrogatepass") for text in texts]
    search, changed = CredentialFilter(bounded=True), {}
    likely = range(len(coded))
    if sum(map(len, coded)) > _SHORT_BYTES:
        likely = np.flatnonzero(_may_have(pa.array(coded, pa.large_binary()))).tolist()
    for number in likely:
        clean = search.clean(coded[number])
        if clean != coded[number]:
            changed[texts[number]] = clean.decode("utf-8", "surrogatepass")
    return changed


def _replaced(value: Any, removed: Mapping[str, str]) -> Any:
    def new(inner: Any) -> Any:
        return _replaced(inner, removed)

    match value:
        case str():
            return removed.get(value, value)
        case Counter() | type():
            return value
        case dict():
            return {new(key): new(inner) for key, inner in value.items()}
        case tuple() if hasattr(value, "_make"):  # a named tuple
            return type(value)._make(map(new, value))
        case list() | tuple() | set() | frozenset():
            return type(value)(map(new, value))
        case _ if dataclasses.is_dataclass(value):
            return _with_replaced_fields(value, removed)
    return value


def _with_replaced_fields(value: Any, removed: Mapping[str, str]) -> Any:
    old = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    new = {name: _replaced(one, removed) for name, one in old.items()}
    return dataclasses.replace(value, **{name: one for name, one in new.items() if one is not old[name]})


def _regions(text: bytes, begin: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of a text between two places in which a credential may start, in order."""
    if stop - begin <= _SHORT_BYTES:
        return [(begin, stop)]
    cuts, is_clean = [begin], [True]
    while cuts[-1] < stop:
        cut = text.find(_CUT, cuts[-1] + _FIRST_LOOK_BYTES, cuts[-1] + 2 * _FIRST_LOOK_BYTES) + len(_CUT)
        is_clean.append(cut > 0)
        cuts.append(min(stop, cut if cut > 0 else cuts[-1] + _FIRST_LOOK_BYTES))
    may_have = ~np.array(is_clean[1:], np.bool_)
    if len(cuts) > 2:
        ends: Int64 = np.array(cuts, np.int64)
        parts = [None, pa.py_buffer(ends), pa.py_buffer(text)]
        may_have |= _may_have(pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, parts))
    else:
        may_have[:] = True  # the windows of a single part are looked at as soon as the part
    starts = [
        at for i in np.flatnonzero(may_have).tolist() for at in range(cuts[i], cuts[i + 1], _WINDOW_BYTES)
    ]
    if not starts:
        return []
    found = _may_have(
        pa.array([text[at : at + _WINDOW_BYTES + _BORDER_BYTES] for at in starts], pa.large_binary())
    )
    return [(starts[i], min(starts[i] + _WINDOW_BYTES, stop)) for i in np.flatnonzero(found).tolist()]


def _may_have(texts: pa.Array) -> Bool:
    """Return a mask of the texts that may have credentials."""
    found = pc.match_substring_regex(texts, candidates()).to_numpy(zero_copy_only=False)
    return np.array(found, np.bool_)


@lru_cache(_MOST_NAMES)
def _shown(name: str) -> str:
    """Return a name without the credentials in it: a key can be one."""
    return without_credentials(name.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


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
