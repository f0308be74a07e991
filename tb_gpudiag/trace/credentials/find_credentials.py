r"""Find credentials in a text: values of a known form, and values whose name announces one.

A text is searched as it is in a file: entries of JSON, JSON inside a string, assignments (`HF_TOKEN=...`),
options of a command line, headers, YAML, Python and URLs. Characters that are coded for no reason (`\u0061`,
`%3D`, `&quot;`) are read as what they stand for. The time for a text is in proportion to its length.
"""

from __future__ import annotations

import contextlib
import json
import re
from bisect import bisect_right
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from tb_gpudiag.vocabulary.credential_forms import MARK, Name, forms_in, is_credential, kind_of_name
from tb_gpudiag.vocabulary.patterns import lazy_re

# Of a value, this much is judged.
_JUDGED: Final = 256
# A value in quotes within a string, such as in a command line, is not longer.
_LONGEST_QUOTED: Final = 1 << 10
# What decides about a credential, before its value, is shorter.
_LOOKED_AT: Final = 2 << 10
# Below the name of a credential, an object or list of JSON is searched for this long.
_LONGEST_INSIDE: Final = 8 << 10
_OPEN: Final = (b"{", b"[")
_MARK: Final = MARK.encode("ascii")

_CODED: Final = lazy_re(
    rb"\\\\{0,15}(?:u00([2-7][0-9A-Fa-f])|(/))|%(2[267Ff]|3[AaDdFf]|40)|&(quot|#3[49]|amp);"
)
_SPELLED: Final = {b"/": b"2f", b"quot": b"22", b"#34": b"22", b"#39": b"27", b"amp": b"26"}

_PARTS: Final = {
    # Quotes in a string of JSON, or in one inside it. After an even number of backslashes, it ends.
    b"{quote}": rb"(?:(?:\\(?:\\\\){0,7})?\"|['`])",
    b"{blank}": rb"[ \t]",
    b"{space}": rb"[ \t\r\n]",
}


def _expression(text: bytes) -> re.Pattern[bytes]:
    for name, part in _PARTS.items():
        text = text.replace(name, part)
    return lazy_re(text)


_NAMED: Final = _expression(
    # Not the n of `\n`. Between quotes, a name may have more than letters and digits.
    rb"(?:(?<![\w.\-])(?!(?<=\\)[nrt])|(?<=\\[nrt]))"
    rb"(?P<name>(?<=[\"'])[A-Za-z][\w.\-/ :]{0,80}(?=\\{0,16}[\"'])|-{0,2}[A-Za-z0-9_][\w.\-]{0,120})"
    rb"(?![\w.\-])(?:"
    rb"(?P<close>{quote})?[)\]]?{blank}{0,8}(?::?{blank}{0,8}str(?:ing)?{blank}{0,8})?"
    # An assignment ends with its line: in `KEY=`, the next variable of an environment is no value.
    rb"(?P<separator>=>|[:.?+|]{0,3}=(?!=)|:(?![:/])|,)(?:(?<=[=>]){blank}|(?<![=>]){space}){0,64}"
    rb"|>(?:{space}|\\{1,16}[nrt]){0,256}"
    rb"|(?P<option>{blank}{1,64})"
    rb")(?P<open>{quote})?"
)
# An entry `value`, with its value and the entry after it that has the name; and the entry after a name.
_PAIRED: Final = _expression(
    rb"[Vv](?i:alue)\\{0,16}[\"']{space}{0,64}:{space}{0,64}\\{0,16}[\"'](?P<value>[^\"']{1,512}?)\\{0,16}[\"']"
    rb"{space}{0,64},{space}{0,256}\\{0,16}[\"'](?i:name|key|variable)\\{0,16}[\"']{space}{0,64}:{space}{0,64}"
    rb"\\{0,16}[\"'](?P<name>[A-Za-z0-9_.\- ]{1,80})\\{0,16}[\"']"
)
_VALUE_ENTRY: Final = _expression(rb"(?i:value)\\{0,16}\"{space}{0,64}:{space}{0,64}(?P<open>\\{0,16}\")")
# The host after a password is the first with a port or a dot, or else the last.
_HOST: Final = rb"(?![^\s/\"'\\,;)\]?#&<>])"
_URL: Final = lazy_re(
    rb"://(?P<user>[^\s\"'/@:\\?#<>]{0,128})(?::(?![0-9]{1,5}(?:/|\Z))(?P<password>"
    rb"[^\s\"'\\<>?#]{1,256}?(?=@(?:[\w\-]+(?:\.[\w\-]+)*:[0-9]{1,5}|[\w\-]+(?:\.[\w\-]+)+"
    rb"|localhost|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?)HOST)"
    rb"|[^\s\"'\\<>?#]{1,256}(?=@[\w\-]+HOST)))?@".replace(b"HOST", _HOST)
)
# A value without quotes ends at a quote or space, or at a separator that another name follows.
_RUN: Final = lazy_re(
    rb"(?:[^\s\"'`\\&;,<]|<(?!/)|\\\\(?![nrtu\"'\\])|\\u(?!00[0-3])[0-9a-fA-F]{4}"
    rb"|[&;,](?!(?:amp;)?[A-Za-z_][A-Za-z0-9_.\-]{0,64}=|[\s\"'\\]|\Z))*"
)
_LINE: Final = lazy_re(rb"(?:[^\r\n\"'`\\]|\\\\(?![nrtu\"'\\])|\\u(?!00[0-3])[0-9a-fA-F]{4})*")
_QUOTED: Final = {
    b"'": lazy_re(rb"(?:[^'\"\\\r\n]|\\\\'|\\[^'])*(?=')"),
    b"`": lazy_re(rb"(?:[^`\"\\\r\n]|\\[^`])*(?=`)"),
}
_END_OF_STRING: Final = lazy_re(rb"[,:\]}\s]|\Z")
# What a pair of strings is about: an option, a variable, a header.
_PAIR_NAME: Final = lazy_re(
    r"--?[A-Za-z][\w.-]*|[A-Z][A-Z0-9_.-]*|[A-Za-z]+(?:-[A-Za-z]+)+|[Aa]uthorization|[Cc]ookie"
)
_COLON: Final = lazy_re(rb'\\{0,16}"[ \t\r\n]{0,64}:')
_HEADER: Final = lazy_re(r"(?i)(?:[A-Za-z]+-)*(?:authorization|cookie)")
_LINE_START: Final = lazy_re(rb"(?:\A|[\r\n]|\\[nr]|(?<!\\)\")(?:[ \t]|-[ \t])*\Z")
_TOKEN: Final = lazy_re(rb'[{}\[\]]|"(?P<text>(?:[^"\\]|\\.)*)"[ \t\r\n]*(?P<colon>:)?', re.DOTALL)


class FoundCredential(NamedTuple):
    """A credential in a text, from `start` to before `end`. One of `name` and `form` may be empty."""

    start: int
    end: int
    name: str
    form: str


def find(text: bytes, stop: int | None = None) -> list[FoundCredential]:
    """Return the credentials that start before `stop`, in order; what overlaps is one."""
    stop = len(text) if stop is None else stop
    plain = _Plain(text, stop + _LOOKED_AT)
    content, last = plain.text, plain.within(stop)
    forms = [
        FoundCredential(form.start, form.end, _entry_before(content, form.start), form.name)
        for form in forms_in(content, last)
    ]
    found = sorted([*forms, *_named(content, last), *_paired(content, last), *_in_urls(content, last)])
    joined: list[FoundCredential] = []
    for each in found:
        if joined and each.start < joined[-1].end:
            before = joined[-1]
            name = before.name if kind_of_name(before.name) is not Name.NOT else each.name or before.name
            joined[-1] = FoundCredential(
                before.start, max(before.end, each.end), name, before.form or each.form
            )
        else:
            joined.append(each)
    return [
        each._replace(start=plain.place(each.start), end=plain.place(each.end))
        for each in joined
        if _MARK not in plain.text[each.start : each.end]
    ]


class _Plain:
    """A text with its characters as they are usually written, and where they were."""

    def __init__(self, text: bytes, stop: int) -> None:
        """stop: what starts from there on stays as it is."""
        parts: list[bytes] = []
        self._plain, self._raw = [0], [0]  # starts of parts, in both texts
        size = at = 0
        for match in _CODED.finditer(text, 0, stop):
            before = text[at : match.start()]
            code = match[match.lastindex or 0]
            character = bytes.fromhex(_SPELLED.get(code, code).decode("ascii"))
            # A quote or backslash in a string of JSON; and the n of `\\\u006e`, which ends an escape then.
            character = b"\\" + character if character in b'"\\' else character
            slashes = len(match[0]) - len(match[0].lstrip(b"\\"))
            character = b"\\" * (slashes - 1 if slashes % 2 else 0) + character
            parts += (before, character)
            size, at = size + len(before), match.end()
            self._plain += (size, size + len(character))
            self._raw += (match.start(), at)
            size += len(character)
        self.text = b"".join((*parts, text[at:])) if parts else text

    def place(self, place: int) -> int:
        """Return where a place of `text` is in the text as it was."""
        part = bisect_right(self._plain, place) - 1
        beyond = place - self._plain[part]
        return self._raw[part + 1] if part % 2 and beyond else self._raw[part] + beyond

    def within(self, raw: int) -> int:
        """Return the place in `text` of a place in the text as it was."""
        part = bisect_right(self._raw, raw) - 1
        return self._plain[part] if part % 2 else self._plain[part] + raw - self._raw[part]


def _named(text: bytes, stop: int) -> Iterator[FoundCredential]:
    at = 0
    while (match := _NAMED.search(text, at, stop + _LOOKED_AT)) is not None and match.start() < stop:
        at = match.end("name")
        name = match["name"].decode("utf-8", "replace")
        kind = kind_of_name(name)
        if kind is Name.NOT:
            at = match.start("open") if match["open"] else match.end()
            continue
        if (
            match["separator"] == b":"
            and match["close"] == b'"'
            and text[match.end() : match.end() + 1] in _OPEN
        ):
            at = yield from _inside(text, match.end(), name, kind)
            continue
        found = _after_name(text, match, name, kind)
        if found is not None:
            yield found
            at = max(at, found.end)


def _after_name(text: bytes, match: re.Match[bytes], name: str, kind: Name) -> FoundCredential | None:
    """Judge what follows a name that announces a credential."""
    start, separator = match.end(), match["separator"]
    opening, closing = match["open"] or b"", match["close"] or b""
    if separator in (b",", b":") and closing.endswith(b'"') and not opening.endswith((b"'", b"`")):
        return _entry(text, match, name, kind) if opening == closing else None
    if not _may_follow(text, match, name) or (opening == b'"' and _END_OF_STRING.match(text, start)):
        return None
    end = _quoted_end(text, start, opening, start + _LONGEST_QUOTED) if opening else -1
    if end < 0:
        return _run(text, match, name, kind)
    return FoundCredential(start, end, name, "") if is_credential(_unescaped(text[start:end]), kind) else None


def _entry(text: bytes, match: re.Match[bytes], name: str, kind: Name) -> FoundCredential | None:
    """Judge the value of an entry of JSON, or the string after a name in a list or in an entry."""
    start, opening, listed = match.end(), match["open"], match["separator"] == b","
    value = _VALUE_ENTRY.match(text, start) if listed else None
    if value is not None and value["open"] == opening:
        start, listed = value.end(), False
    elif listed and not _PAIR_NAME.fullmatch(name):
        return None
    end = _quoted_end(text, start, opening, start + _JUDGED)
    if listed and end >= 0 and _COLON.match(text, end):
        return None
    if not is_credential(_unescaped(text[start : end if end >= 0 else start + _JUDGED]), kind):
        return None
    end = _quoted_end(text, start, opening, len(text))
    return FoundCredential(start, end if end >= 0 else len(text), name, "")


def _inside(text: bytes, start: int, name: str, kind: Name) -> Generator[FoundCredential, None, int]:
    """Judge the strings in an object or a list of JSON. Return where it ends, or where the search does."""
    depth, entry, at = 0, "", start
    for token in _TOKEN.finditer(text, start, start + _LONGEST_INSIDE):
        at = token.end()
        if token["text"] is None:
            depth += 1 if token.group() in b"{[" else -1
            entry = ""
            if depth <= 0:
                break
        elif token["colon"]:
            entry = _unescaped(token["text"])
        else:
            own = kind_of_name(entry)
            inner = token["text"]
            if is_credential(_unescaped(inner[:_JUDGED]), max(kind, own)) or any(_named(inner, len(inner))):
                yield FoundCredential(*token.span("text"), name if own is Name.NOT else entry, "")
    return at


def _may_follow(text: bytes, match: re.Match[bytes], name: str) -> bool:
    """Return whether a value may follow such a name in a text, with what is between them."""
    if match["option"]:
        return name.startswith("-") and not text.startswith(b"-", match.end())
    separator, before = match["separator"], text[: match.start("name")][-2:]
    if separator is None:
        return before.endswith(b"<")
    if separator == b",":
        in_tuple = before[: -len(match["close"] or b"")].endswith(b"(")
        return bool(match["close"] and match["open"]) and (in_tuple or _PAIR_NAME.fullmatch(name) is not None)
    return match["open"] is not None or match["close"] is None or separator != b":"


def _run(text: bytes, match: re.Match[bytes], name: str, kind: Name) -> FoundCredential | None:
    """Judge a value without quotes."""
    start, begin, after_colon = match.end(), match.start("name"), match["separator"] == b":"
    is_header = after_colon and _HEADER.fullmatch(name) is not None
    is_line = after_colon and kind is Name.PASSWORD and _LINE_START.search(text[max(0, begin - 64) : begin])
    if after_colon and kind is Name.HINT and text.startswith(b":", start - 1):
        return None  # `io.jsonwebtoken:jjwt-0.11.2`
    run = _LINE if is_header or is_line else _RUN
    value = text[start : _end(run, text, start, start + _JUDGED)].decode("utf-8", "replace")
    is_text = after_colon and kind is Name.CLEAR and not is_header and not is_credential(value, Name.SHORT)
    if is_text or not is_credential(value, kind):
        return None
    return FoundCredential(start, _end(run, text, start, len(text)), name, "")


def _paired(text: bytes, stop: int) -> Iterator[FoundCredential]:
    for match in _PAIRED.finditer(text, 0, stop + _LOOKED_AT):
        if match.start() >= stop:
            return
        name = match["name"].decode("utf-8", "replace")
        if is_credential(_unescaped(match["value"]), kind_of_name(name)):
            yield FoundCredential(*match.span("value"), name, "")


def _in_urls(text: bytes, stop: int) -> Iterator[FoundCredential]:
    """Find passwords in URLs, and tokens in place of the user."""
    for match in _URL.finditer(text, 0, stop + _LOOKED_AT):
        if match.start() >= stop:
            return
        part, kind, form = (
            ("user", Name.HINT, "token in a URL")
            if match["password"] is None
            else ("password", Name.PASSWORD, "password in a URL")
        )
        if is_credential(match[part].decode("utf-8", "replace"), kind):
            yield FoundCredential(*match.span(part), _entry_before(text, match.start(part)), form)


def _quoted_end(text: bytes, start: int, opening: bytes, stop: int) -> int:
    """Return where a value in quotes ends; -1 if that is not before `stop`."""
    if not opening.endswith(b'"'):
        return _end(_QUOTED[opening], text, start, stop)
    level, at = len(opening) - 1, start
    while (quote := text.find(b'"', at, stop)) >= 0:
        slashes = quote - at - len(text[at:quote].rstrip(b"\\"))
        if (not level and slashes % 2 == 0) or (level and slashes <= level):
            return quote - (slashes if level else 0)
        at = quote + 1
    return -1


def _end(expression: re.Pattern[bytes], text: bytes, start: int, stop: int) -> int:
    match = expression.match(text, start, stop)
    return -1 if match is None else match.end()


def _entry_before(text: bytes, start: int) -> str:
    """Return the name of the entry of JSON whose value starts shortly before; empty if there is none."""
    parts = text[max(0, start - _JUDGED) : start].rsplit(b'"', 3)
    is_entry = len(parts) == 4 and parts[2].strip(b" \t\r\n\\") == b":"
    return _unescaped(parts[1].rstrip(b"\\")) if is_entry else ""


def _unescaped(data: bytes) -> str:
    """Return the text of the inside of a string of JSON."""
    if b"\\" in data:
        with contextlib.suppress(ValueError):
            return str(json.loads(b'"' + data + b'"'))
    return data.decode("utf-8", "replace")
