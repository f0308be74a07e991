"""Where in the text of a trace a credential may begin, and how far its value goes: in JSON and in what a
string of JSON may contain, such as assignments, options, headers, YAML, Python and URLs.

No expression here looks further than some hundred characters, so the time for a text is in proportion to its
length, whatever it says.
"""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.vocabulary.credential_forms import BOUNDARY, IN_VALUES, IN_WORDS

NAME_CHARACTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
IN_NAMES: Final = (
    *(b"token", b"secret", b"pass", b"pwd", b"cred", b"key", b"auth", b"cookie", b"jwt", b"bearer"),
    *(b"connection", b"value", b"_pw"),
    rb"\u00",
)
"""A name that `kind_of_name` takes for a credential's contains one of these, ignoring case: a word, or a
character that is escaped for no reason. So does the name of a value whose name follows."""
_SLASHES: Final = (b"", b"\\", b"\\\\")
IN_URLS: Final = tuple(b":" + a + b"/" + b + b"/" for a in _SLASHES for b in _SLASHES)
ANYWHERE: Final = (*IN_URLS, *IN_WORDS)
"""What is found within words, too."""

_PARTS: Final = {
    b"name": rb"[A-Za-z0-9_.\-]",
    # A character of a key of JSON.
    b"key": rb"(?:[A-Za-z0-9_.\-/ :]|\\u00[0-9A-Fa-f]{2})",
    # Quotes and `=`, as JSON, URLs and HTML may write them.
    b"coded": rb"(?:\\{1,4}u002[27]|%2[27]|&quot;|&#3[49];)",
    b"equals": rb"(?:[:.?+|]{0,3}=|\\{1,4}u003[dD]|%3[dD])",
    # A quote in a string of JSON, or in one within it. After an even number of backslashes, it ends one.
    b"quote": rb"(?:(?:\\(?:\\\\){0,7})?\"|['`])",
    b"blank": rb"[ \t]",
    b"space": rb"[ \t\r\n]",
}


def _expression(text: bytes) -> re.Pattern[bytes]:
    """Compile an expression in which {NAME} is one of the parts."""
    for name, part in _PARTS.items():
        text = text.replace(b"{" + name + b"}", part)
    return re.compile(text)


FOLLOWED: Final = _expression(
    rb"{name}{0,80}(?!{name})(?:"
    rb"{coded}?{blank}{0,8}(?:string{blank}{0,8})?(?:{equals}|:(?![:/]))"
    rb"|{key}{0,64}\\{0,16}[\"'][)\]]?{space}{0,16}[:,=]"
    rb"|(?P<bare>[ \t>]))"
)
"""What follows the start of a word of IN_NAMES if a value may follow. After the bare end of a name, one does
only if it is the name of an option or in a tag."""

VALUE_START: Final = re.compile(
    b"%s(?=%s)|(?=%s)" % (BOUNDARY, b"|".join(map(re.escape, IN_VALUES)), b"|".join(map(re.escape, ANYWHERE)))
)
"""Where a value starts that is a credential whatever its name."""

MAYBE: Final = (
    _expression(
        rb"(?i:NAMES){name}*(?:{coded}?{blank}*(?:string{blank}*)?(?:{equals}|:)"
        rb"|{key}*\\*[\"'][)\]]?{space}*[:,=])"
        rb"|[-<]{name}*(?i:NAMES){name}*[ \t>]|\\u003[dD]|VALUES"
    )
    .pattern.replace(b"NAMES", b"|".join(map(re.escape, IN_NAMES)))
    .replace(b"VALUES", b"|".join(map(re.escape, (*IN_VALUES, *ANYWHERE))))
    .decode("ascii")
)
"""Matches where FOLLOWED does or a value starts, or before it. For RE2, which needs no bounds."""

ENTRY: Final = _expression(rb"{key}{0,80}(?P<escape>\\{0,16})\"{space}{0,64}(?P<after>[:,]){space}{0,256}")
"""The rest of a key of JSON, or of a string in a list, up to the next value."""

NAMED: Final = _expression(
    rb"(?P<name>{name}{0,80})(?!{name})(?:"
    rb"(?P<close>{quote}|{coded})?[)\]]?{blank}{0,8}(?::?{blank}{0,8}str(?:ing)?{blank}{0,8})?"
    rb"(?P<separator>=>|{equals}(?!=)|:(?![:/])|,){blank}{0,64}"
    rb"|>(?:{space}|\\[nrt]){0,256}"
    rb"|(?P<option>{blank}{1,64})"
    rb")(?P<open>{quote}|{coded})?"
)
"""The rest of a name in other text, up to its value."""

RUN: Final = re.compile(
    rb"(?:[^\s\"'`\\&;,<]|<(?!/)"
    rb"|\\/|\\\\(?![nrtu\"'\\])|\\u(?!00[0-3])[0-9a-fA-F]{4}"
    rb"|[&;,](?!(?:amp;)?[A-Za-z_][A-Za-z0-9_.\-]{0,64}(?:=|%3[dD])|[\s\"'\\]|\Z))*"
)
"""A value without quotes: it ends at a quote or space, or at a separator that another name follows."""

LINE: Final = re.compile(rb"(?:[^\r\n\"'`\\]|\\/|\\\\(?![nrtu\"'\\])|\\u(?!00[0-3])[0-9a-fA-F]{4})*")
"""A value up to the end of its line."""

SINGLE_QUOTED: Final = re.compile(rb"(?:[^'\"\\\r\n]|\\\\'|\\[^'])*(?=')")
BACK_QUOTED: Final = re.compile(rb"(?:[^`\"\\\r\n]|\\[^`])*(?=`)")

PAIRED: Final = _expression(
    rb"(?P<escape>\\{0,16})(?P<quote>[\"']){space}{0,64}:{space}{0,64}\\{0,16}[\"'](?P<value>[^\"']{1,512}?)\\{0,16}[\"']"
    rb"{space}{0,64},{space}{0,256}\\{0,16}[\"'](?i:name|key|variable)\\{0,16}[\"']{space}{0,64}:{space}{0,64}"
    rb"\\{0,16}[\"'](?P<name>[A-Za-z0-9_.\- ]{1,80})\\{0,16}[\"']"
)
"""The rest of an entry `value`, with its value and the entry after it that has the name."""

URL: Final = re.compile(rb":\\{0,2}/\\{0,2}/(?P<user>[^\s\"'/@:\\?#<>]{0,128})(?P<colon>:)?")
USER_INFO: Final = re.compile(rb"(?:[^\s\"'\\<>?#]|\\{1,2}/){0,512}")
HOST: Final = re.compile(
    rb"(?:[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{1,5})?(?![^\s/\"'\\,;)\]?#&<>])"
)
