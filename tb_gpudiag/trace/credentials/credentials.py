"""Find credentials in the text of a trace, and remove them, block by block.

Text is searched as it is in the file: in entries of JSON at any depth, in JSON inside a string, in
assignments (`HF_TOKEN=...`), in options of a command line, and for values of a known form. Only a little text
is kept in memory, however long a credential is. Quotes and brackets stay, so JSON stays JSON.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tb_gpudiag.trace.credentials.credential_places import places
from tb_gpudiag.trace.credentials.judging import (
    BACK,
    JUDGED,
    Below,
    Rest,
    Secret,
    form_in,
    judge,
    string_end,
    unescaped,
)
from tb_gpudiag.vocabulary.credential_names import MARK, Name, is_credential, kind_of_name
from tb_gpudiag.vocabulary.recorded import Credential

PLACES_PER_MB: Final = 5_000
"""Bound on the places that are judged in each MB of text, where others wait for the result. Judging one takes
about 5 µs. Real traces have up to 1,000."""
# What decides about a credential (its name, and the start of its value) is shorter.
_REACH: Final = 8 << 10
# Places are found this many at a time.
_PLACES_AT_ONCE: Final = 1_024
# More different names than this are counted together.
_MOST_NAMES: Final = 1_000

# Names and frames are searched this many at a time.
_TEXTS_AT_ONCE: Final = 4_096
_BETWEEN_TEXTS: Final = b"\n\0\n"
_TOKEN: Final = re.compile(rb'["\[\]{},:]')
# JSON below a credential's name is searched for this long: brackets that never close must not matter.
_MOST_INSIDE_BYTES: Final = 1 << 20


@dataclass
class _Inside:
    """An object or array below a name that announces a credential."""

    name: str
    kind: Name
    open: bytearray
    entry: str = ""  # the name of the current entry
    at_key: bool = False
    at_end_of_string: bool = False
    size: int = 0

    def follow(self, mark: bytes) -> bool:
        """Follow a bracket, comma or colon. Return whether the search goes on after it."""
        if mark in (b"{", b"["):
            self.open += mark
        elif mark in (b"}", b"]"):
            del self.open[-1:]
            self.entry = ""
        self.at_key = mark in (b"{", b",") and self.open.endswith(b"{")
        return (mark == b":" or bool(self.open)) and self.size <= _MOST_INSIDE_BYTES


class CredentialFilter:
    """Passes text on without the credentials in it. `found` counts them."""

    def __init__(self, places_per_mb: int = 0) -> None:
        """places_per_mb: how many places are judged in each MB of text; 0 for all. Judging one takes some
        microseconds, and a text can be made of nothing else."""
        self.found: Counter[Credential] = Counter()
        self.skipped_bytes = 0  # text that was not searched because of that bound
        self._per_mb = places_per_mb
        self._seen_bytes = self._judged = 0
        self._text = b""
        self._at = 0  # everything before it has been passed on or dropped
        self._look = 0  # everything before it is settled
        self._places: deque[int] = deque()
        self._known = 0  # the places before it are found
        self._rest: Rest | None = None
        self._inside: _Inside | None = None

    def feed(self, block: bytes) -> bytes:
        """Take the next block. Return what can be passed on by now."""
        gone = max(0, self._at - BACK)
        self._text = self._text[gone:] + block
        self._at, self._look = self._at - gone, self._look - gone
        self._seen_bytes += len(block)
        return b"".join(self._pass_on(final=False))

    def search(self, block: bytes) -> None:
        """Take the next block, and do not pass it on. A block in which nothing can begin is not copied."""
        if self._rest is None and self._inside is None and len(block) >= _REACH:
            before = self._text[max(0, self._look - BACK) :] + block[:_REACH]
            if not places(before, 0, len(before), 1) and not places(block, 0, len(block), 1):
                self._text = block[-_REACH - BACK :]
                self._at = self._look = len(self._text) - _REACH
                self._seen_bytes += len(block)
                return
        self.feed(block)

    def end(self) -> bytes:
        """Return the rest, after the last block."""
        return b"".join(self._pass_on(final=True))

    def _pass_on(self, *, final: bool) -> Iterator[bytes]:
        text = self._text
        self._places.clear()
        self._known = 0
        while True:
            if self._rest is not None:
                self._at, ended = self._rest.end(text, self._at, final)
                self._look = self._at
                if not ended:
                    return
                self._rest = None
            found = self._next(final)
            if found is None:
                yield text[self._at : self._look]
                self._at = self._look
                return
            self._count(found)
            yield text[self._at : found.start]
            yield MARK.encode("ascii")
            self._at = self._look = found.seen
            self._rest = found.rest

    def _next(self, final: bool) -> Secret | None:
        """Return the next credential; None if more text is needed, or at the end."""
        while True:
            if self._inside is not None:
                found_inside = self._next_inside(self._inside, final)
                if found_inside is not None or self._inside is not None:
                    return found_inside
            # What starts before this can be judged.
            stop = len(self._text) if final else len(self._text) - _REACH
            place = self._next_place(stop)
            if place < 0:
                self._look = max(self._look, stop)
                return None
            self._look = place + 1
            found = judge(self._text, place)
            if isinstance(found, Below):
                self._inside = _Inside(found.name, found.kind, bytearray())
                self._look = found.at
            elif found is not None:
                return found

    def _next_place(self, stop: int) -> int:
        """Return the next place from `_look` to before `stop`, or -1."""
        while True:
            while self._places:
                place = self._places.popleft()
                if place >= self._look:
                    self._judged += 1
                    return place
            at = max(self._look, self._known)
            if at >= stop:
                return -1
            most = self._most_places()
            if most <= 0:
                self.skipped_bytes += stop - at
                self._known = stop
                return -1
            found = places(self._text, at, stop, most)
            self._known = found[-1] + 1 if len(found) == most else stop
            self._places.extend(found)

    def _most_places(self) -> int:
        """Return how many places to find next."""
        if not self._per_mb:
            return _PLACES_AT_ONCE
        return min(_PLACES_AT_ONCE, int(self._per_mb * (1 + self._seen_bytes / 1e6)) - self._judged)

    def _next_inside(self, inside: _Inside, final: bool) -> Secret | None:
        """Find the next credential in an object or array. At its end, `self._inside` is None."""
        text = self._text
        self._look += inside.at_end_of_string
        inside.at_end_of_string = False
        while (token := _TOKEN.search(text, self._look)) is not None:
            inside.size += token.end() - self._look
            mark = token.group()
            if mark == b'"':
                if not final and len(text) - token.end() < _REACH:
                    self._look = token.start()
                    return None
                found = self._judge_inside(inside, token.end())
                if found is not None:
                    inside.at_end_of_string = True
                    return found
                continue
            self._look = token.end()
            if not inside.follow(mark):
                self._inside = None
                return None
        self._look = len(text)
        return None

    def _judge_inside(self, inside: _Inside, start: int) -> Secret | None:
        """Judge a string, and pass over it if it is not a credential."""
        text = self._text
        end = string_end(text, start, 0)
        value = text[start : min(end if end >= 0 else len(text), start + JUDGED)]
        inside.size += max(end, start) - start
        if inside.at_key and end >= 0:
            inside.entry = unescaped(value)
        else:
            kind = max(inside.kind, kind_of_name(inside.entry))
            if end < 0 or is_credential(unescaped(value), kind) or places(text, start, end, 1):
                named = inside.entry if kind_of_name(inside.entry) is not Name.NOT else inside.name
                return Secret(start, start, named, form_in(value), Rest())
        self._look = end + 1
        return None

    def _count(self, found: Secret) -> None:
        credential = Credential(_shown(found.name.lstrip("-")), found.form)
        if credential not in self.found and len(self.found) >= _MOST_NAMES:
            credential = Credential("", "")
        self.found[credential] += 1


def without_credentials(text: bytes) -> bytes:
    """Return a text without the credentials in it; only the mark, if there are too many places to look at."""
    if not places(text, 0, len(text), 1):
        return text
    found = CredentialFilter(PLACES_PER_MB)
    clean = found.feed(text) + found.end()
    return MARK.encode("ascii") if found.skipped_bytes else clean


def remove_credentials(texts: list[str]) -> None:
    """Replace the texts that contain credentials, in place."""
    for begin in range(0, len(texts), _TEXTS_AT_ONCE):
        part = [text.encode("utf-8", "surrogatepass") for text in texts[begin : begin + _TEXTS_AT_ONCE]]
        joined = _BETWEEN_TEXTS.join(part)
        clean = without_credentials(joined)
        if clean == joined:
            continue
        cleaned = clean.split(_BETWEEN_TEXTS)
        if len(cleaned) != len(part):  # a credential with an open quote took the texts after it with it
            cleaned = [without_credentials(text) for text in part]
        texts[begin : begin + _TEXTS_AT_ONCE] = [text.decode("utf-8", "surrogatepass") for text in cleaned]


@functools.lru_cache(_MOST_NAMES)
def _shown(name: str) -> str:
    """Return a name without the credentials in it: a key can be one. Cached: starting a search is
    slow."""
    return without_credentials(name.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
