"""Find credentials in the text of a trace, and remove them, block by block.

Text is searched as it is in the file: in entries of JSON at any depth, in JSON inside a string, in
assignments (`HF_TOKEN=...`), in options of a command line, and for values of a known form. Only a little text
is kept in memory, however long a credential is. Quotes and brackets stay, so JSON stays JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tb_gpudiag.trace.credentials.credential_places import places, run_before
from tb_gpudiag.vocabulary.credential_names import (
    FORM,
    FORM_NAMES,
    MARK,
    Name,
    is_credential,
    kind_of_name,
)
from tb_gpudiag.vocabulary.credential_text import ASSIGNED, ENTRY, NAME_CHARACTERS, OPTION, URL
from tb_gpudiag.vocabulary.recorded import Credential

# What decides about a credential (its name, and the start of its value) is shorter.
_REACH: Final = 8 << 10
# This much text before a name or value is kept, to see where it starts.
_BACK: Final = 256
# Of a value, this much is judged.
_JUDGED: Final = 256
# Of a value of a known form, this much is matched.
_LONGEST_FORM: Final = 512
# Places are found this many at a time.
_PLACES_AT_ONCE: Final = 1_024
PLACES_PER_MB: Final = 5_000
"""Bound on the places that are judged in each MB of text, where others wait for the result. Judging one takes
about 5 µs. Real traces have up to 1,000."""
# More different names than this are counted together.
_MOST_NAMES: Final = 1_000

# Names and frames are searched this many at a time.
_TEXTS_AT_ONCE: Final = 4_096
_BETWEEN_TEXTS: Final = b"\n\0\n"
_BACKSLASH: Final = ord("\\")

_RUN_OF_VALUE: Final = re.compile(rb"""(?:[^\s"'\\&;,]|\\/)*""")
_RUN_OF_FORM: Final = re.compile(rb"[A-Za-z0-9_.+/=\-]*")
_RUN_OF_PRIVATE_KEY: Final = re.compile(rb"(?:\\+[nr]|[A-Za-z0-9+/=\s:,-])*")
# Backslashes at the end of the text may belong to what follows, if there are few.
_MOST_PENDING: Final = 64
_OPTION: Final = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_VALUE_ENTRY: Final = re.compile(rb'\\*"value\\*"[ \t\r\n]*:[ \t\r\n]*')
_COLON: Final = re.compile(rb'\\*"[ \t\r\n]*:')
_ESCAPED_SPACES: Final = (rb"\n", rb"\r", rb"\t")
_IN_WORD: Final = NAME_CHARACTERS.strip(b".-")
_TOKEN: Final = re.compile(rb'["\[\]{},:]')
# JSON below a credential's name is searched for this long: brackets that never close must not matter.
_MOST_INSIDE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class _Rest:
    """What follows the part of a credential that was seen: the rest of a run of characters, or of a string
    whose quotes have this many backslashes."""

    run: re.Pattern[bytes] | None = None
    level: int = 0

    def end(self, text: bytes, at: int, final: bool) -> tuple[int, bool]:
        """Return where the credential ends, or up to where the text is part of it, and if that is its end."""
        if self.run is None:
            end = _string_end(text, at, self.level)
            if end >= 0 or final:
                return (end if end >= 0 else len(text)), True
            slashes = _slashes_before(text, len(text), at)
            return len(text) - (slashes if slashes <= _MOST_PENDING else slashes % 2), False
        match = self.run.match(text, at)
        end = at if match is None else match.end()
        pending = text[end : end + _MOST_PENDING + 1]
        waits = not final and len(pending) <= _MOST_PENDING and not pending.strip(b"\\")
        return end, not waits


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


@dataclass(frozen=True)
class _Hit:
    """A credential: it starts at `start`, was seen up to `seen`, and ends with `rest`."""

    start: int
    seen: int
    rest: _Rest | None = None


_REST_OF_FORM: Final = {"private key": _Rest(_RUN_OF_PRIVATE_KEY)}


class _Form(NamedTuple):
    start: int
    end: int
    name: str


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
        self._rest: _Rest | None = None
        self._inside: _Inside | None = None

    def feed(self, block: bytes) -> bytes:
        """Take the next block. Return what can be passed on by now."""
        gone = max(0, self._at - _BACK)
        self._text = self._text[gone:] + block
        self._at, self._look = self._at - gone, self._look - gone
        self._seen_bytes += len(block)
        return b"".join(self._pass_on(final=False))

    def search(self, block: bytes) -> None:
        """Take the next block, and do not pass it on. A block in which nothing can begin is not copied."""
        if self._rest is None and self._inside is None and len(block) >= _REACH:
            before = self._text[max(0, self._look - _BACK) :] + block[:_REACH]
            if not places(before, 0, len(before), 1) and not places(block, 0, len(block), 1):
                self._text = block[-_REACH - _BACK :]
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
            hit = self._next(final)
            if hit is None:
                yield text[self._at : self._look]
                self._at = self._look
                return
            yield text[self._at : hit.start]
            yield MARK.encode("ascii")
            self._at = self._look = hit.seen
            self._rest = hit.rest

    def _next(self, final: bool) -> _Hit | None:
        """Return the next credential; None if more text is needed, or at the end."""
        while True:
            if self._inside is not None:
                hit = self._next_inside(self._inside, final)
                if hit is not None or self._inside is not None:
                    return hit
            # What starts before this can be judged.
            stop = len(self._text) if final else len(self._text) - _REACH
            place = self._next_place(stop)
            if place < 0:
                self._look = max(self._look, stop)
                return None
            self._look = place + 1
            hit = self._judge(place)
            if hit is not None:
                return hit

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

    def _judge(self, place: int) -> _Hit | None:
        """Judge what starts at a place. It looks at a bounded part of the text."""
        text = self._text
        if text.startswith(b":", place):
            return self._judge_url(place)
        form = _form_at(text, place)
        if form is not None:
            rest = _REST_OF_FORM.get(form.name, _Rest(_RUN_OF_FORM))
            return self._hit(form.start, form.name, form.end, rest)
        assigned = ASSIGNED.match(text, place)
        if assigned is not None:
            begin = _after_escape(text, run_before(text, place))
            return self._judge_run(_text(text[begin : assigned.end("name")]), assigned.end())
        option = OPTION.match(text, place)
        if option is not None:
            begin = run_before(text, place)
            return self._judge_run(_text(text[begin : option.end("name")]), option.end())
        entry = ENTRY.match(text, place)
        return None if entry is None else self._judge_entry(entry)

    def _judge_url(self, place: int) -> _Hit | None:
        url = URL.match(self._text, place)
        if url is None or not is_credential(_text(url["password"]), Name.PASSWORD):
            return None
        return self._hit(url.start("password"), "password in a URL", url.end("password"))

    def _judge_run(self, name: str, start: int) -> _Hit | None:
        """Judge a value that ends at a quote, a space or a separator."""
        kind = kind_of_name(name)
        if kind is Name.NOT:
            return None
        value = _RUN_OF_VALUE.match(self._text, start, start + _JUDGED)
        if value is None or value.group().startswith(b"="):  # a comparison, or the version of a package
            return None
        if not is_credential(_text(value.group()), kind):
            return None
        return self._named_hit(name, _Hit(start, value.end(), _Rest(_RUN_OF_VALUE)), value.group())

    def _judge_entry(self, entry: re.Match[bytes]) -> _Hit | None:
        """Judge what follows a string: its value if it is a key, or the next string of a list."""
        text = self._text
        begin = text.rfind(b'"', max(0, entry.start() - _BACK), entry.start()) + 1
        name = _unescaped(text[begin or entry.start() : entry.start("escape")])
        kind = kind_of_name(name)
        if kind is Name.NOT:
            return None
        escape, at = entry["escape"], entry.end()
        listed = entry["after"] == b","
        if listed:
            if not (_OPTION.fullmatch(name) or _VARIABLE.fullmatch(name)):
                return None
            value_entry = _VALUE_ENTRY.match(text, at)
            at = at if value_entry is None else value_entry.end()
        elif text[at : at + 1] in (b"[", b"{") and not escape:
            self._inside = _Inside(name, kind, bytearray())
            self._look = at
            return None
        if not text.startswith(escape + b'"', at):
            return None
        start = at + len(escape) + 1
        end = _string_end(text, start, len(escape), start + _JUDGED)
        if listed and end >= 0 and _COLON.match(text, end):
            return None
        value = text[start : end if end >= 0 else start + _JUDGED]
        if not is_credential(_unescaped(value), kind):
            return None
        return self._named_hit(name, _Hit(start, start, _Rest(level=len(escape))), value)

    def _next_inside(self, inside: _Inside, final: bool) -> _Hit | None:
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
                hit = self._judge_inside(inside, token.end())
                if hit is not None:
                    inside.at_end_of_string = True
                    return hit
                continue
            self._look = token.end()
            if not inside.follow(mark):
                self._inside = None
                return None
        self._look = len(text)
        return None

    def _judge_inside(self, inside: _Inside, start: int) -> _Hit | None:
        """Judge a string, and pass over it if it is not a credential."""
        text = self._text
        end = _string_end(text, start, 0)
        value = text[start : min(end if end >= 0 else len(text), start + _JUDGED)]
        inside.size += max(end, start) - start
        if inside.at_key and end >= 0:
            inside.entry = _unescaped(value)
        else:
            kind = max(inside.kind, kind_of_name(inside.entry))
            if end < 0 or is_credential(_unescaped(value), kind) or places(text, start, end, 1):
                named = inside.entry if kind_of_name(inside.entry) is not Name.NOT else inside.name
                return self._named_hit(named, _Hit(start, start, _Rest()), value)
        self._look = end + 1
        return None

    def _named_hit(self, name: str, hit: _Hit, value: bytes) -> _Hit:
        forms = (_form_at(value, place) for place in places(value, 0, len(value), _PLACES_AT_ONCE))
        self._count(name.lstrip("-"), next((form.name for form in forms if form is not None), ""))
        return hit

    def _hit(self, start: int, form: str, seen: int, rest: _Rest | None = None) -> _Hit:
        """Count a value of a known form, with the name of the entry that it is in, if that is near."""
        parts = self._text[max(0, start - _BACK) : start].rsplit(b'"', 3)
        is_entry = len(parts) == 4 and parts[2].strip(b" \t\r\n\\") == b":"
        self._count(_unescaped(parts[1].rstrip(b"\\")) if is_entry else "", form)
        return _Hit(start, seen, rest)

    def _count(self, name: str, form: str) -> None:
        credential = Credential(_shown(name), form)
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


def _form_at(text: bytes, place: int) -> _Form | None:
    """Return the value of a known form that starts here, if it is not in the middle of a word."""
    before = text[max(0, place - 2) : place]
    if before and before[-1:] in _IN_WORD and before not in _ESCAPED_SPACES:
        return None
    match = FORM.match(text, place, place + _LONGEST_FORM)
    if match is None or match.lastgroup is None:
        return None
    return _Form(*match.span(match.lastgroup), FORM_NAMES[int(match.lastgroup[4:])])


def _string_end(text: bytes, at: int, level: int, stop: int | None = None) -> int:
    """Find where a string ends: its closing quote, or the backslashes of that. -1 if it goes on.

    level: number of backslashes before its quotes, for a string within a string.
    """
    while (quote := text.find(b'"', at, stop)) >= 0:
        slashes = _slashes_before(text, quote, at)
        if not level and slashes % 2 == 0:
            return quote
        if level and slashes <= level:
            return quote - slashes
        at = quote + 1
    return -1


def _slashes_before(text: bytes, end: int, begin: int) -> int:
    at = end
    while at > begin and text[at - 1] == _BACKSLASH:
        at -= 1
    return end - at


def _after_escape(text: bytes, begin: int) -> int:
    r"""Pass over the letter of an escape: `\nTOKEN` is `TOKEN` on a line of its own."""
    return begin + (text[max(0, begin - 1) : begin + 1] in _ESCAPED_SPACES)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _unescaped(data: bytes) -> str:
    if b"\\" in data:
        with contextlib.suppress(ValueError):
            return str(json.loads(b'"' + data + b'"'))
    return _text(data)
