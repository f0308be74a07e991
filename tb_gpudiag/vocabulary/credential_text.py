"""Where in the text of a trace a credential may begin: in JSON, in assignments, in options, in URLs.

No expression here looks further than some hundred characters, so the time for a text is in proportion to its
length, whatever it says.
"""

from __future__ import annotations

import re
from typing import Final

NAME_CHARACTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_NAME: Final = rb"[A-Za-z0-9_.\-]"
# A character of a key of JSON.
_KEY: Final = rb"(?:[A-Za-z0-9_.\-/\ :]|\\u00[0-9A-Fa-f]{2})"
_CODED_QUOTE: Final = rb"(?:\\{1,4}u002[27]|%2[27]|&quot;|&\#3[49];)"
_EQUALS: Final = rb"(?:=|\\{1,4}u003[dD]|%3[dD])"

IN_NAMES: Final = (
    *(b"token", b"secret", b"pass", b"pwd", b"credential", b"key", b"auth", b"cookie", b"jwt", b"bearer"),
    b"connection",
    rb"\u00",
)
"""A name that `kind_of_name` takes for a credential's contains one of these, ignoring case: a word, or a
character that is escaped for no reason."""

IN_VALUES: Final = (
    *(b":" + a + b"/" + b + b"/" for a in (b"", b"\\") for b in (b"", b"\\")),
    b"-----BEGIN",
    *(b"hf_", b"api_org_", b"gho_", b"ghp_", b"ghs_", b"ghu_", b"ghr_", b"github_pat_"),
    *(b"glpat-", b"glptt-", b"gldt-", b"glrt-", b"sk-", b"gsk_", b"nvapi-"),
    *(b"rk_live_", b"rk_test_", b"sk_live_", b"sk_test_", b"AKIA", b"ASIA", b"AIza"),
    *(b"xox", b"hooks.slack", b"npm_", b"pypi-", b"dckr_pat_", b"wandb_v1_", b"dapi", b"r8_", b"eyJ"),
    *(b"AccountKey=", b"Bearer ", b"bearer "),
)
"""How values start that are credentials whatever their name."""

FOLLOWED: Final = re.compile(
    rb"""%(name)s{0,80}(?!%(name)s)(?:
        %(quote)s?[ \t]{0,8}(?:%(equals)s|:(?![:/]))
        | %(key)s{0,64}\\{0,16}["'][)\]]?[ \t\r\n]{0,16}[:,=]
        | (?P<bare>[ \t>])
    )"""
    % {b"name": _NAME, b"key": _KEY, b"quote": _CODED_QUOTE, b"equals": _EQUALS},
    re.VERBOSE,
)
"""What follows the start of such a word if a value may follow. After the bare end of a name, one does only if
it is the name of an option or in a tag."""

MAYBE: Final = (
    rb"(?i:%(names)s)%(name)s*(?:(?:%(quote)s)?[ \t]*(?:%(equals)s|:)|%(key)s*\\*[\"'][)\]]?[ \t\r\n]*[:,=])"
    rb"|[-<]%(name)s*(?i:%(names)s)%(name)s*[ \t>]|%(values)s"
    % {
        b"name": _NAME,
        b"key": _KEY.replace(rb"\ ", b" "),
        b"quote": _CODED_QUOTE.replace(rb"\#", b"#"),
        b"equals": _EQUALS,
        b"names": b"|".join(map(re.escape, IN_NAMES)),
        b"values": b"|".join(map(re.escape, IN_VALUES)),
    }
).decode("ascii")
"""Matches where FOLLOWED does or a value starts, or before it. For RE2, which needs no bounds."""

ENTRY: Final = re.compile(
    rb"""%s{0,80}(?P<escape>\\{0,16})"[ \t\r\n]{0,64}(?P<after>[:,])[ \t\r\n]{0,256}""" % _KEY, re.VERBOSE
)
"""The rest of a key of JSON, or of a string in a list, up to the next value."""
ASSIGNED: Final = re.compile(rb"""(?P<name>%s{0,80})=\\{0,16}["']?""" % _NAME)
OPTION: Final = re.compile(rb"""(?P<name>%s{0,80})[ \t]{1,64}\\{0,16}["']?""" % _NAME)
URL: Final = re.compile(rb""":\\?/\\?/[^\s"'/@:\\]{0,128}:(?P<password>[^\s"'/@\\]{1,512})@""")
