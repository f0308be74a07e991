"""Judge what starts at a place: whether it is a credential, where it is, and how it ends.

Each judgment looks at a bounded part of the text.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.credentials.credential_places import places, run_before
from tb_gpudiag.vocabulary.credential_forms import form_at
from tb_gpudiag.vocabulary.credential_names import Name, is_credential, kind_of_name
from tb_gpudiag.vocabulary.credential_text import (
    BACK_QUOTED,
    ENTRY,
    HOST,
    LINE,
    NAMED,
    PAIRED,
    RUN,
    SINGLE_QUOTED,
    URL,
    USER_INFO,
)

# This much text before a place is looked at, to see where a name starts.
BACK: Final = 256
# Of a value, this much is judged.
JUDGED: Final = 256
# A value in quotes within a string of JSON, such as a command line, is not longer.
_LONGEST_QUOTED: Final = 1 << 10
_LONGEST_HOST: Final = 256
_MOST_FORMS: Final = 16
_BACKSLASH: Final = ord("\\")
# Backslashes at the end of the text may belong to what follows, if there are few.
_MOST_PENDING: Final = 64
# An expression for the rest of a value looks ahead less than this, and knows no longer escape.
_AHEAD: Final = 128
_LONGEST_ESCAPE: Final = 20

_RUN_OF_FORM: Final = re.compile(rb"[A-Za-z0-9_.+/=\-]*")
_RUN_OF_PRIVATE_KEY: Final = re.compile(
    rb"(?:\\{1,16}[nrt]|[A-Za-z0-9+/=\s:,.()@<>]|-(?!----END))*(?:-----END [A-Z0-9 ]{0,60}-----)?"
)
# What a pair of strings is about: an option, a variable, a header.
_PAIR_NAME: Final = re.compile(
    r"--?[A-Za-z][\w.-]*|[A-Z][A-Z0-9_.-]*|[A-Za-z]+(?:-[A-Za-z]+)+|[Aa]uthorization|[Cc]ookie"
)
_HEADER: Final = re.compile(r"(?i)(?:[A-Za-z]+-)*(?:authorization|cookie)")
_VALUE_ENTRY: Final = re.compile(rb'\\{0,16}"(?i:value)\\{0,16}"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}')
_COLON: Final = re.compile(rb'\\{0,16}"[ \t\r\n]{0,64}:')
_END_OF_STRING: Final = re.compile(rb"[,:\]}\s]|\Z")
_PORT: Final = re.compile(rb"[0-9]{1,5}(?:\\?/|\Z)")
_LINE_START: Final = re.compile(rb"(?:\A|[\r\n]|\\[nr]|(?<!\\)\")(?:[ \t]|-[ \t])*\Z")
_ESCAPED_SPACES: Final = (rb"\n", rb"\r", rb"\t")


@dataclass(frozen=True, eq=False)
class Rest:
    """What follows the part of a credential that was seen: the rest of a run of characters, or of a string
    whose quotes have this many backslashes."""

    run: re.Pattern[bytes] | None = None
    level: int = 0

    def end(self, text: bytes, at: int, final: bool) -> tuple[int, bool]:
        """Return where the credential ends, or up to where the text is part of it, and if that is its end."""
        if self.run is None:
            end = string_end(text, at, self.level)
            if end >= 0 or final:
                return (end if end >= 0 else len(text)), True
            slashes = _slashes_before(text, len(text), at)
            return len(text) - (slashes if slashes <= _MOST_PENDING else slashes % 2), False
        match = self.run.match(text, at)
        end = at if match is None else match.end()
        if final or end < len(text) - _AHEAD:
            return end, True
        end = max(at, min(end, len(text) - _AHEAD))
        escape = text.rfind(b"\\", max(at, end - _LONGEST_ESCAPE), end)
        return (end if escape < 0 else escape + 1 - _slashes_before(text, escape + 1, at)), False


_REST_OF_FORM: Final = {"private key": Rest(_RUN_OF_PRIVATE_KEY)}


class Secret(NamedTuple):
    """A credential: it starts at `start`, was seen up to `seen`, and ends with `rest`."""

    start: int
    seen: int
    name: str
    form: str
    rest: Rest | None = None


class Below(NamedTuple):
    """An object or array of JSON starts at `at`, below a name that announces a credential."""

    at: int
    name: str
    kind: Name


def judge(text: bytes, place: int) -> Secret | Below | None:
    """Judge what starts at a place."""
    form = form_at(text, place)
    if form is not None:
        rest = _REST_OF_FORM.get(form.name, Rest(_RUN_OF_FORM))
        return Secret(form.start, form.end, _entry_before(text, form.start), form.name, rest)
    if text.startswith(b":", place):
        return _judge_url(text, place)
    entry = ENTRY.match(text, place)
    found = None if entry is None else _judge_entry(text, entry)
    return found or _judge_named(text, place) or _judge_paired(text, place)


def form_in(value: bytes) -> str:
    """Return which known form a value contains; empty if none."""
    forms = (form_at(value, place) for place in places(value, 0, len(value), _MOST_FORMS))
    return next((form.name for form in forms if form is not None), "")


def string_end(text: bytes, at: int, level: int, stop: int | None = None) -> int:
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


def unescaped(data: bytes) -> str:
    """Return the text of the inside of a string of JSON."""
    if b"\\" in data:
        with contextlib.suppress(ValueError):
            return str(json.loads(b'"' + data + b'"'))
    return _text(data)


def _judge_url(text: bytes, place: int) -> Secret | None:
    """Judge a password in a URL, or a token in place of the user."""
    url = URL.match(text, place)
    if url is None:
        return None
    start, form = url.end(), "password in a URL"
    if url["colon"] is None:
        known = text.startswith(b"@", start) and is_credential(_text(url["user"]), Name.HINT)
        return (
            Secret(url.start("user"), start, _entry_before(text, start), "token in a URL") if known else None
        )
    end = _password_end(text, start)
    if end < 0 or not is_credential(_text(text[start:end]), Name.PASSWORD):
        return None
    return Secret(start, end, _entry_before(text, start), form)


def _password_end(text: bytes, start: int) -> int:
    """Return where the password of a URL ends, at the `@` before its host; -1 if it has none."""
    info = USER_INFO.match(text, start)
    if info is None or _PORT.match(text, start, info.end()):
        return -1
    found, at = -1, text.find(b"@", start, info.end())
    while at >= 0:
        host = HOST.match(text, at + 1, at + _LONGEST_HOST)
        if host is not None:
            found = at
            if host["port"] or b"." in host.group() or host.group() == b"localhost":
                break
        at = text.find(b"@", at + 1, info.end())
    return found


def _judge_entry(text: bytes, entry: re.Match[bytes]) -> Secret | Below | None:
    """Judge what follows a string: its value if it is a key, or the next string of a list."""
    begin = text.rfind(b'"', max(0, entry.start() - BACK), entry.start()) + 1
    name = unescaped(text[begin or entry.start() : entry.start("escape")])
    kind = kind_of_name(name)
    if kind is Name.NOT:
        return None
    escape, at = entry["escape"], entry.end()
    listed = entry["after"] == b","
    if listed:
        value_entry = _VALUE_ENTRY.match(text, at)
        if value_entry is None and not _PAIR_NAME.fullmatch(name):
            return None
        at = at if value_entry is None else value_entry.end()
    elif text[at : at + 1] in (b"[", b"{") and not escape:
        return Below(at, name, kind)
    if not text.startswith(escape + b'"', at):
        return None
    start = at + len(escape) + 1
    end = string_end(text, start, len(escape), start + JUDGED)
    if listed and end >= 0 and _COLON.match(text, end):
        return None
    value = text[start : end if end >= 0 else start + JUDGED]
    if not is_credential(unescaped(value), kind):
        return None
    return Secret(start, start, name, form_in(value), Rest(level=len(escape)))


def _judge_named(text: bytes, place: int) -> Secret | None:
    """Judge what follows a name in other text than JSON."""
    named = NAMED.match(text, place)
    if named is None:
        return None
    begin = run_before(text, place)
    begin += text[max(0, begin - 1) : begin + 1] in _ESCAPED_SPACES  # `\nTOKEN` is `TOKEN` on its own line
    name = _text(text[begin : named.end("name")])
    kind = kind_of_name(name)
    if kind is Name.NOT or not _may_follow(text, begin, name, named):
        return None
    start, quote = named.end(), named["open"]
    if quote is not None and (quote != b'"' or not _END_OF_STRING.match(text, start)):
        end = _quoted_end(text, start, quote)
        if end >= 0:
            value = text[start:end]
            known = is_credential(unescaped(value), kind)
            return Secret(start, end, name, form_in(value)) if known else None
    elif quote is not None:  # it ends the string of JSON
        return None
    return _judge_run(text, begin, name, kind, named)


def _may_follow(text: bytes, begin: int, name: str, named: re.Match[bytes]) -> bool:
    """Return whether a value may follow such a name, with what is between them."""
    if named["option"]:
        return name.startswith("-") and not text.startswith(b"-", named.end())
    if named["separator"] is None:
        return text[max(0, begin - 1) : begin] == b"<"
    if named["separator"] in (b",", b":") and (named["close"] or b"").endswith(b'"'):
        return not (named["open"] or b'"').endswith(b'"')  # an entry, which was judged
    if named["separator"] == b",":
        in_tuple = text[: begin - len(named["close"] or b"")].endswith(b"(") if named["close"] else False
        return bool(named["close"] and named["open"]) and (in_tuple or _PAIR_NAME.fullmatch(name) is not None)
    return named["open"] is not None or named["close"] is None or named["separator"] != b":"


def _judge_run(text: bytes, begin: int, name: str, kind: Name, named: re.Match[bytes]) -> Secret | None:
    """Judge a value without quotes."""
    start, after_colon = named.end(), named["separator"] == b":"
    is_header = after_colon and _HEADER.fullmatch(name) is not None
    is_line = after_colon and kind is Name.PASSWORD and _LINE_START.search(text[max(0, begin - 64) : begin])
    run = LINE if is_header or is_line else RUN
    if after_colon and kind is Name.HINT and text.startswith(b":", start - 1):
        return None  # `io.jsonwebtoken:jjwt-0.11.2`
    match = run.match(text, start, start + JUDGED)
    value = b"" if match is None else match.group()
    if not is_credential(_text(value), kind):
        return None
    if after_colon and kind is Name.CLEAR and not is_header and not is_credential(_text(value), Name.SHORT):
        return None  # text about it
    return Secret(start, start, name, form_in(value), Rest(run))


def _judge_paired(text: bytes, place: int) -> Secret | None:
    """Judge an entry `value` whose name is in the next entry."""
    if text[place : place + 5].lower() != b"value":
        return None
    paired = PAIRED.match(text, place + 5)
    if paired is None:
        return None
    name, value = _text(paired["name"]), paired["value"]
    if not is_credential(unescaped(value), kind_of_name(name)):
        return None
    return Secret(paired.start("value"), paired.end("value"), name, form_in(value))


def _quoted_end(text: bytes, start: int, quote: bytes) -> int:
    """Return where a value in quotes ends; -1 if that is not near."""
    stop = start + _LONGEST_QUOTED
    if quote.endswith(b'"'):
        return string_end(text, start, len(quote) - 1, stop)
    if quote.endswith((b"'", b"`")):
        match = (SINGLE_QUOTED if quote.endswith(b"'") else BACK_QUOTED).match(text, start, stop)
        return -1 if match is None else match.end()
    end = text.find(quote, start, stop)
    return end if end < 0 or string_end(text, start, 0, end) < 0 else -1


def _entry_before(text: bytes, start: int) -> str:
    """Return the name of the entry of JSON whose value starts shortly before; empty if there is none."""
    parts = text[max(0, start - BACK) : start].rsplit(b'"', 3)
    is_entry = len(parts) == 4 and parts[2].strip(b" \t\r\n\\") == b":"
    return unescaped(parts[1].rstrip(b"\\")) if is_entry else ""


def _slashes_before(text: bytes, end: int, begin: int) -> int:
    at = end
    while at > begin and text[at - 1] == _BACKSLASH:
        at -= 1
    return end - at


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
