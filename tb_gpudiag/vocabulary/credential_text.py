"""Where in the text of a trace a credential may begin: in JSON, in assignments, in options, in URLs."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.vocabulary.credential_names import FORM, FORM_START, NAME_WORD

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
# Finds each place where SITE matches, or a place a little before it, and few others.
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
IN_NAMES: Final = (
    b"token",
    b"secret",
    b"pass",
    b"_pass",
    b"pwd",
    b"credential",
    b"key",
    b"auth",
    b"cookie",
    b"jwt",
    b"bearer",
    b"connection",
    rb"\u00",
)
IN_VALUES: Final = (
    *(b":" + a + b"/" + b + b"/" for a in (b"", b"\\") for b in (b"", b"\\")),
    b"-----BEGIN",
    *(b"hf_", b"api_org_", b"gho_", b"ghp_", b"ghs_", b"ghu_", b"ghr_", b"github_pat_"),
    *(b"glpat-", b"glptt-", b"gldt-", b"glrt-", b"sk-", b"gsk_", b"nvapi-"),
    *(b"rk_live_", b"rk_test_", b"sk_live_", b"sk_test_", b"AKIA", b"ASIA", b"AIza"),
    *(b"xox", b"hooks.slack", b"npm_", b"pypi-", b"dckr_pat_", b"wandb_v1_", b"dapi", b"r8_", b"eyJ"),
    *(b"AccountKey=", b"bearer "),
)
"""Whatever MAYBE matches contains one of the texts of IN_NAMES or IN_VALUES, ignoring case: in the word of a
name, or at its start."""
