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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tb_gpudiag.trace.credentials.credential_places import WORTH_BYTES, first_place
from tb_gpudiag.vocabulary.credential_names import (
    FORM_NAMES,
    MARK,
    Name,
    is_credential,
    kind_of_name,
)
from tb_gpudiag.vocabulary.credential_text import SITE
from tb_gpudiag.vocabulary.recorded import Credential

# What decides about a credential (its name, and the start of its value) is shorter.
_REACH: Final = 8 << 10
# This much text before a name or value is kept, to see where it starts.
_BACK: Final = 256
# Of a value, this much is judged.
_JUDGED: Final = 1 << 10
# More different names than this are counted together.
_MOST_NAMES: Final = 1_000

# Names and frames are searched this many at a time.
_TEXTS_AT_ONCE: Final = 4_096
_BETWEEN_TEXTS: Final = b"\n\0\n"
_BACKSLASH: Final = ord("\\")

_RUN_OF_VALUE: Final = re.compile(rb"""(?:[^\s"'\\&;,]|\\/)*""")
_RUN_OF_FORM: Final = re.compile(rb"[A-Za-z0-9_.+/=\-]*")
_RUN_OF_PRIVATE_KEY: Final = re.compile(rb"(?:\\+[nr]|[A-Za-z0-9+/=\s:,-])*")
_RUN_OF_NAME: Final = re.compile(rb"[A-Za-z0-9_.\-]*\Z")
# Backslashes at the end of the text may belong to what follows, if there are few.
_MOST_PENDING: Final = 64
_OPTION: Final = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_VALUE_ENTRY: Final = re.compile(rb'\\*"value\\*"[ \t\r\n]*:[ \t\r\n]*')
_COLON: Final = re.compile(rb'\\*"[ \t\r\n]*:')
_ENTRY_BEFORE: Final = re.compile(rb'"([^"\\]{1,64})\\*"[ \t\r\n]*:[ \t\r\n]*\\*"[^"]*\Z')
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


class CredentialFilter:
    """Passes text on without the credentials in it. `found` counts them."""

    def __init__(self) -> None:
        self.found: Counter[Credential] = Counter()
        self._text = b""
        self._at = 0  # everything before it has been passed on or dropped
        self._look = 0  # everything before it is settled
        self._slow_until = 0
        self._rest: _Rest | None = None
        self._inside: _Inside | None = None

    def feed(self, block: bytes) -> bytes:
        """Take the next block. Return what can be passed on by now."""
        gone = max(0, self._at - _BACK)
        self._text = self._text[gone:] + block
        self._at, self._look = self._at - gone, self._look - gone
        self._slow_until = max(0, self._slow_until - gone)
        return b"".join(self._pass_on(final=False))

    def search(self, block: bytes) -> None:
        """Take the next block, and do not pass it on. A block in which nothing can begin is not copied."""
        if self._rest is None and self._inside is None and len(block) >= _REACH:
            before = self._text[max(0, self._look - _BACK) :]
            if first_place(before + block[:_REACH], 0) < 0 and first_place(block, 0) < 0:
                self._text = block[-_REACH - _BACK :]
                self._at = self._look = len(self._text) - _REACH
                self._slow_until = 0
                return
        self.feed(block)

    def end(self) -> bytes:
        """Return the rest, after the last block."""
        return b"".join(self._pass_on(final=True))

    def _pass_on(self, *, final: bool) -> Iterator[bytes]:
        text = self._text
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
        text = self._text
        while True:
            if self._inside is not None:
                hit = self._next_inside(self._inside, final)
                if hit is not None or self._inside is not None:
                    return hit
            # What starts before this can be judged.
            stop = len(text) if final else len(text) - _REACH
            site = self._next_site(stop)
            if site is None:
                self._look = max(self._look, stop)
                return None
            self._look = site.end()
            hit = self._judge(site)
            if hit is not None:
                return hit

    def _next_site(self, stop: int) -> re.Match[bytes] | None:
        text = self._text
        while self._look < stop:
            if self._look >= self._slow_until:
                maybe = first_place(text, self._look)
                if maybe < 0 or maybe >= stop:
                    return None
                self._look, self._slow_until = maybe, maybe + WORTH_BYTES
            site = SITE.search(text, self._look, self._slow_until + _REACH)
            if site is not None and site.start() < min(self._slow_until, stop):
                return site
            self._look = max(self._look, min(self._slow_until, stop))
        return None

    def _judge(self, site: re.Match[bytes]) -> _Hit | None:
        form = site.lastgroup or ""
        if form.startswith("form"):
            return self._hit(site.start(), FORM_NAMES[int(form[4:])], site.end(), _Rest(_RUN_OF_FORM))
        if form == "private_key":
            return self._hit(site.start(), "private key", site.end(), _Rest(_RUN_OF_PRIVATE_KEY))
        if form == "password":
            start, end = site.span("password")
            known = is_credential(_text(site["password"]), Name.PASSWORD)
            return self._hit(start, "password in a URL", end) if known else None
        if form == "option":
            name = _text(site.group()[2:].split()[0])
            return self._judge_run(name, site.end())
        if form == "assign":
            run = _RUN_OF_NAME.search(self._text, max(0, site.start() - _BACK), site.start())
            begin = site.start() if run is None else _after_escape(self._text, run.start())
            return self._judge_run(_text(self._text[begin : site.start("assign")]), site.end())
        return self._judge_entry(site)

    def _judge_run(self, name: str, start: int) -> _Hit | None:
        """Judge a value that ends at a quote, a space or a separator."""
        value = _RUN_OF_VALUE.match(self._text, start, start + _JUDGED)
        kind = kind_of_name(name)
        if value is None or value.group().startswith(b"="):  # a comparison, or the version of a package
            return None
        if not is_credential(_text(value.group()), kind):
            return None
        return self._named_hit(name, _Hit(start, value.end(), _Rest(_RUN_OF_VALUE)), value.group())

    def _judge_entry(self, site: re.Match[bytes]) -> _Hit | None:
        """Judge what follows a string: its value if it is a key, or the next string of a list."""
        text = self._text
        begin = text.rfind(b'"', max(0, site.start() - _BACK), site.start()) + 1
        name = _unescaped(text[begin or site.start() : site.start("escape")])
        kind = kind_of_name(name)
        if kind is Name.NOT:
            return None
        escape, at = site["escape"], site.end()
        listed = site["after"] == b","
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
        end = _string_end(text, start, len(escape))
        if listed and end >= 0 and _COLON.match(text, end):
            return None
        value = text[start : min(end if end >= 0 else len(text), start + _JUDGED)]
        if not is_credential(_unescaped(value), kind):
            self._look = start
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
            if end < 0 or is_credential(_unescaped(value), kind) or SITE.search(text, start, end):
                named = inside.entry if kind_of_name(inside.entry) is not Name.NOT else inside.name
                return self._named_hit(named, _Hit(start, start, _Rest()), value)
        self._look = end + 1
        return None

    def _named_hit(self, name: str, hit: _Hit, value: bytes) -> _Hit:
        site = SITE.search(value)
        form = (site.lastgroup or "") if site is not None else ""
        self._count(name.lstrip("-"), FORM_NAMES[int(form[4:])] if form.startswith("form") else "")
        return hit

    def _hit(self, start: int, form: str, seen: int, rest: _Rest | None = None) -> _Hit:
        """Count a value of a known form, with the name of the entry that it is in, if that is near."""
        before = _ENTRY_BEFORE.search(self._text, max(0, start - _BACK), start)
        self._count("" if before is None else _unescaped(before[1]), form)
        return _Hit(start, seen, rest)

    def _count(self, name: str, form: str) -> None:
        credential = Credential(_shown(name), form)
        if credential not in self.found and len(self.found) >= _MOST_NAMES:
            credential = Credential("", "")
        self.found[credential] += 1


def without_credentials(text: bytes) -> bytes:
    """Return a text without the credentials in it."""
    if first_place(text, 0) < 0:
        return text
    found = CredentialFilter()
    return found.feed(text) + found.end()


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


def _string_end(text: bytes, at: int, level: int) -> int:
    """Find where a string ends: its closing quote, or the backslashes of that. -1 if it goes on.

    level: number of backslashes before its quotes, for a string within a string.
    """
    while (quote := text.find(b'"', at)) >= 0:
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
    return begin + (text[begin - 1 : begin + 1] in (rb"\n", rb"\r", rb"\t"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _unescaped(data: bytes) -> str:
    if b"\\" in data:
        with contextlib.suppress(ValueError):
            return str(json.loads(b'"' + data + b'"'))
    return _text(data)
