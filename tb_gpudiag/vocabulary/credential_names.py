"""Names and values that look like credentials: tokens, keys, passwords.

A value is judged by its name (`HF_TOKEN`, `dbPassword`) or, whatever its name, by a form that only a
credential has (`ghp_...`, a URL with a password). Harmless names also contain such words (`pad_token`, `PWD`,
`TOKENIZERS_PARALLELISM`, `GPG_KEY`).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

MARK: Final = "[removed]"
"""Replaces a credential. A value that contains this mark is not a credential."""


class Name(IntEnum):
    """How clearly a name announces a credential."""

    NOT = 0
    HINT = 1  # `token`, `STORAGE_KEY`: the value must look random
    CLEAR = 2  # `HF_TOKEN`, `api_key`, `clientSecret`: any longer word
    PASSWORD = 3  # any text


_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_PASSWORD_WORDS: Final = frozenset({"password", "passwd", "passphrase", "passcode"})
_SECRET_WORDS: Final = frozenset(
    {"secret", "secrets", "credential", "credentials", "authorization", "bearer", "cookie", "jwt", "apikey"}
)
# `<word> key`, such as `AWS_SECRET_ACCESS_KEY` or `accountKey`.
_KEYS: Final = frozenset(
    {"api", "access", "account", "app", "auth", "client", "encryption", "private", "secret", "service"}
    | {"session", "shared", "signing", "ssh"}
)
# Variables of the environment that end in KEY and are public: the fingerprint of who signed a release, a
# key that finds something.
_PUBLIC_KEYS: Final = frozenset(
    {"gpg", "public", "host", "cache", "primary", "foreign", "sort", "partition", "index", "hash", "lookup"}
)
# `<word> token` in any spelling, such as `auth_token` or `hubToken`.
_TOKENS: Final = frozenset(
    {
        "access",
        "api",
        "app",
        "auth",
        "bearer",
        "bot",
        "deploy",
        "github",
        "gitlab",
        "hf",
        "hub",
        "id",
        "jupyter",
    }
    | {"login", "oauth", "personal", "private", "refresh", "secret", "security", "service", "session", "user"}
    | {"wandb", "write", "read"}
)
# Tokens of a language model, not of a server.
_TEXT_TOKENS: Final = frozenset(
    {"pad", "eos", "bos", "unk", "cls", "sep", "mask", "image", "video", "audio", "start", "end", "stop"}
    | {"special", "max", "min", "num", "next", "first", "last", "per", "new", "input", "output", "prompt"}
)
# The last word of a name that says where a credential is or how it is used, not what it is.
_ABOUT: Final = frozenset(
    {"path", "file", "dir", "directory", "name", "url", "uri", "endpoint", "type", "count", "len", "length"}
    | {"size", "limit", "id", "ids", "index", "expiry", "expires", "ttl", "timeout", "enabled", "required"}
    | {"policy", "mode", "version", "format", "prefix", "suffix", "usage", "budget", "method", "provider"}
    | {"store", "rotation", "bits", "algorithm", "helper"}
)


def kind_of_name(name: str) -> Name:
    """Judge a name: of a JSON entry, an environment variable or an option."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return Name.NOT
    shouted = name.upper() == name
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if _PASSWORD_WORDS.intersection(words) or _ends_as_password(before, last, shouted):
        return Name.PASSWORD
    if _SECRET_WORDS.intersection(words) or _ends_as_secret(before, last):
        return Name.CLEAR
    if last == "key":
        return _kind_of_key(before, shouted)
    if last.endswith("token"):
        return _kind_of_token(before, shouted and name != "TOKEN")
    return Name.NOT


def _ends_as_password(before: str, last: str, shouted: bool) -> bool:
    if last == "pwd":
        return before not in {"", "old"}
    return last == "pass" and before != "" and shouted


def _ends_as_secret(before: str, last: str) -> bool:
    return last.endswith("apikey") or (before, last) == ("connection", "string")


def _kind_of_key(before: str, shouted: bool) -> Name:
    if before in _KEYS:
        return Name.CLEAR
    return Name.HINT if shouted and before and before not in _PUBLIC_KEYS else Name.NOT


def _kind_of_token(before: str, shouted: bool) -> Name:
    if before in _TEXT_TOKENS:
        return Name.NOT
    return Name.CLEAR if shouted or before in _TOKENS else Name.HINT


_PLACEHOLDER: Final = re.compile(
    r"(?i)[*.\-_# ]*|<.*>|\[.*\]|\$.*|%.*%|\{\{.*\}\}"
    r"|none|null|true|false|yes|no|unset|redacted|removed|changeme"
)
_PATH: Final = re.compile(r"(?:/|~/|\.{1,2}/|[A-Za-z]:[\\/]|file:)")
_AWS_SECRET: Final = re.compile(r"[A-Za-z0-9/+]{40}")
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
_RANDOM: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=_.~:-]+")
_LEAST: Final = {Name.HINT: 16, Name.CLEAR: 8, Name.PASSWORD: 4}
"""Characters that a credential with such a name has at least."""


def is_credential(value: str, name: Name) -> bool:
    """Judge the value of something with a name of this kind. The first KB of a longer value is enough."""
    if name is Name.NOT or len(value) < _LEAST[name] or MARK in value or _PLACEHOLDER.fullmatch(value):
        return False
    if name is Name.PASSWORD:
        return True
    if _PATH.match(value) and not _AWS_SECRET.fullmatch(value):
        return False
    if name is Name.HINT:
        return _RANDOM.fullmatch(value) is not None
    scheme, _, rest = value.partition(" ")
    word = rest if scheme.lower() in {"bearer", "basic", "token"} else value
    return " " not in word and _ENVIRONMENT_NAME.fullmatch(word) is None


_FORMS: Final = (
    ("Hugging Face token", rb"hf_(?:[A-Za-z]{0,40}[0-9][A-Za-z0-9]{15,}|[A-Za-z0-9]{30,})"),
    ("Hugging Face token", rb"api_org_[A-Za-z0-9]{30,}"),
    ("GitHub token", rb"gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}"),
    ("GitLab token", rb"gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_-]{16,}"),
    (
        "API key",
        rb"sk-(?:[A-Za-z_-]{0,40}[0-9][A-Za-z0-9_-]{15,}|[A-Za-z0-9]{40,})|gsk_[A-Za-z0-9]{20,}"
        rb"|nvapi-[A-Za-z0-9_-]{20,}",
    ),
    ("Stripe key", rb"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("AWS access key", rb"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("Google API key", rb"AIza[A-Za-z0-9_-]{35}"),
    ("Slack token", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("Slack webhook", rb"hooks\.slack\.com\\?/services\\?/[A-Za-z0-9\\/]{20,}"),
    ("package registry token", rb"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|dckr_pat_[A-Za-z0-9_-]{20,}"),
    ("Weights & Biases key", rb"wandb_v1_[A-Za-z0-9_-]{20,}"),
    ("Databricks token", rb"dapi[0-9a-f]{32}"),
    ("Replicate token", rb"r8_[A-Za-z0-9]{30,}"),
    ("JSON web token", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("private key", rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
)
# What stays before the value.
_AFTER: Final = (
    (rb"AccountKey=", "Azure account key", rb"[A-Za-z0-9+/]{30,}={0,2}"),
    (rb"[Bb]earer ", "authorization header", rb"[A-Za-z0-9_.~+/-]{16,}={0,2}"),
)
_ALL_FORMS: Final = (*((b"", name, form) for name, form in _FORMS), *_AFTER)
FORM_NAMES: Final = tuple(name for _, name, _ in _ALL_FORMS)
FORM: Final = re.compile(
    b"|".join(b"%s(?P<form%d>%s)" % (before, i, form) for i, (before, _, form) in enumerate(_ALL_FORMS))
)
"""Values that are credentials whatever their name, as they are in JSON text. The group says which."""
