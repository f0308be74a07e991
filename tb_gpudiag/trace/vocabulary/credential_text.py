"""Where in the text of a trace a credential may begin: in JSON, in assignments, in options, in URLs."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.trace.vocabulary.credential_names import FORM, FORM_START, NAME_WORD

_WORD: Final = b"(?i:" + NAME_WORD + b")"
_URL_PASSWORD: Final = rb"""(?::\\?/\\?/)[^\s"'/@:\\]*:(?P<password>[^\s"'/@\\]+)@"""
_PRIVATE_KEY: Final = rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"
SITE: Final = re.compile(
    _WORD
    + rb"""(?:
        (?:[A-Za-z0-9_.\-\ /:]|\\u00[0-9A-Fa-f]{2}){0,64}(?P<escape>\\*)"[ \t\r\n]*(?P<after>[:,])[ \t\r\n]*
        | [A-Za-z0-9_.\-]{0,64}(?P<assign>=)\\*["']?
    )
    | --[A-Za-z0-9_.\-]{0,64}?"""
    + _WORD
    + rb"""[A-Za-z0-9_.\-]{0,64}(?P<option>[ \t]+)\\*["']?
    | """
    + _URL_PASSWORD
    + rb"""
    | (?P<private_key>"""
    + _PRIVATE_KEY.replace(b" ", rb"\ ")
    + rb""")
    | (?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))(?:"""
    + FORM.replace(b" ", rb"\ ")
    + b")",
    re.VERBOSE,
)
# Finds every place where SITE matches or a little before it, and few others.
MAYBE: Final = (
    _WORD
    + rb'(?:(?:[A-Za-z0-9_.\- /:]|\\u00[0-9A-Fa-f]{2})*\\*"[ \t\r\n]*:|[A-Za-z0-9_.\-]*=)'
    + rb'|"[A-Z0-9_]*(?:TOKEN|SECRET|PASS|PWD|KEY|CREDENTIAL|COOKIE|AUTH)[A-Z0-9_]*\\*"[ \t\r\n]*,'
    + rb"|--[A-Za-z0-9_.\-]*"
    + _WORD
    + rb"|"
    + _URL_PASSWORD.replace(b"?P<password>", b"")
    + rb"|"
    + _PRIVATE_KEY
    + rb"|"
    + FORM_START
).decode("ascii")
