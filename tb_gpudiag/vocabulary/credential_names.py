"""Names and values that look like credentials: tokens, keys, passwords.

A value is judged by its name (`HF_TOKEN`, `dbPassword`) or, whatever its name, by a form that only a
credential has (`ghp_...`, a URL with a password). Harmless names also contain such words (`pad_token`, `PWD`,
`TOKENIZERS_PARALLELISM`, `GPG_KEY`).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

from tb_gpudiag.vocabulary.patterns import lazy_re

MARK: Final = "[removed]"
"""Replaces a credential. A value that contains this mark is not a credential."""


class Name(IntEnum):
    """How clearly a name announces a credential."""

    NOT = 0
    HINT = 1  # `token`, `STORAGE_KEY`: the value must look random
    SHORT = 2  # `pass`, `pwd`: the value must look like a password
    CLEAR = 3  # `HF_TOKEN`, `api_key`, `clientSecret`: any longer word
    PASSWORD = 4  # any text


_WORDS: Final = lazy_re(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PASSWORD_ENDS: Final = ("password", "passwords", "passwd", "passphrase", "passcode")
# Before `pass`, `pwd` or `pw`, in one word or two: whose password it is.
_OWNERS: Final = _set(
    "admin auth backup cache client database db email ftp git http imap key keystore krb ldap login mail "
    "minio mongo mongodb mqtt my mysql pg postgres proxy rabbitmq rds redis registry root server sftp smb "
    "smtp sql ssh sudo svn user vnc vpn wifi"
)
# Words in capitals that end in PASS and name no password.
_OTHER_PASSES: Final = _set("bypass compass encompass overpass surpass trespass underpass")
_SECRET_WORDS: Final = _set(
    "secret secrets credential credentials cred creds authorization bearer cookie jwt apikey"
)
KEYS: Final = _set(
    "admin api access account app application auth client consumer decryption deploy encryption hmac jwt "
    "license master private root secret service session shared signing ssh subscription webhook"
)
"""Before `key`, as in `AWS_SECRET_ACCESS_KEY` or `accountKey`."""
# Variables of the environment that end in KEY and are public: the fingerprint of who signed a release, a
# key that finds something.
_PUBLIC_KEYS: Final = _set("gpg public host cache primary foreign sort partition index hash lookup")
# `<word> token` in any spelling, such as `auth_token` or `hubToken`.
_TOKENS: Final = _set(
    "access api app auth bearer bot deploy github gitlab hf hub id jupyter login oauth personal private "
    "refresh secret security service session user wandb write read"
)
# Tokens of a language model, not of a server.
_TEXT_TOKENS: Final = _set(
    "pad eos bos unk cls sep mask image video audio start end stop special max min num next first last per "
    "new input output prompt"
)
# The last word of a name that says where a credential is or how it is used, not what it is.
_ABOUT: Final = _set(
    "path file dir directory name url uri endpoint type count len length size limit id ids index expiry "
    "expires ttl timeout enabled required policy mode version format prefix suffix usage budget method "
    "provider store rotation bits algorithm helper stdin variable"
)
# The first word of a name that says whether one is used.
_WHETHER: Final = _set("use no has is with without skip enable disable show")


@lru_cache(1_000)
def kind_of_name(name: str) -> Name:
    """Judge a name: of a JSON entry, an environment variable or an option."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT or words[0] in _WHETHER:
        return Name.NOT
    shouted = name.upper() == name
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if any(word.endswith(_PASSWORD_ENDS) for word in words):
        return Name.PASSWORD
    if last.endswith(("pass", "pwd", "pw")):
        return _kind_of_pass(before, last, shouted)
    if _SECRET_WORDS.intersection(words) or _ends_as_secret(before, last):
        return Name.CLEAR
    if last == "auth":
        return Name.HINT
    if last == "key":
        return _kind_of_key(before, shouted)
    if last.endswith("token"):
        return _kind_of_token(before, shouted and name != "TOKEN")
    return Name.NOT


def _kind_of_pass(before: str, last: str, shouted: bool) -> Name:
    if last in {"pass", "pwd", "pw"}:
        if before in _OWNERS or (shouted and before not in {"", "old"}):
            return Name.PASSWORD
        if before or last == "pw":
            return Name.NOT
        return Name.PASSWORD if shouted and last == "pass" else Name.SHORT
    owned = last.removesuffix("pass").removesuffix("pwd").removesuffix("pw")
    if owned in _OWNERS or (shouted and last.endswith("pass") and last not in _OTHER_PASSES):
        return Name.PASSWORD
    return Name.NOT


def _ends_as_secret(before: str, last: str) -> bool:
    return last.endswith("apikey") or (before, last) == ("connection", "string")


def _kind_of_key(before: str, shouted: bool) -> Name:
    if before in KEYS:
        return Name.CLEAR
    return Name.HINT if shouted and before and before not in _PUBLIC_KEYS else Name.NOT


def _kind_of_token(before: str, shouted: bool) -> Name:
    if before in _TEXT_TOKENS:
        return Name.NOT
    return Name.CLEAR if shouted or before in _TOKENS else Name.HINT


_PLACEHOLDER: Final = lazy_re(
    r"(?i)[*.\-_# ]*|<.*>|\[.*\]|\$.*|%.*%|\{.*\}"
    r"|none|null|true|false|yes|no|unset|redacted|removed|changeme|required|optional|x{4,}"
    r"|str|string|bytes|int|bool|object|optional\[.*|tensor"
)
# `get_key()`, `os.environ["X"]`, `config.key)`: code that gets it.
_CODE: Final = lazy_re(r"[A-Za-z_][\w.]*[(\[](?:.*[)\]].*)?|(?:self|os|config|args|cfg|var)\.\w.*")
_PATH: Final = lazy_re(r"(?:/|~/|\.{1,2}/|[A-Za-z]:[\\/]|file:)")
_AWS_SECRET: Final = lazy_re(r"[A-Za-z0-9/+]{40}")
_ENVIRONMENT_NAME: Final = lazy_re(r"[A-Z]+(?:_[A-Z]+)+")
_RANDOM: Final = lazy_re(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=_.~:%-]+")
_SCHEME: Final = lazy_re(r"(?i)(?:apikey|aws4-hmac-sha256|basic|bearer|bot|digest|(?:[a-z]+-)?token)")
_FIRST_OF_MANY: Final = lazy_re("[;,] ")
_LIKE_A_PASSWORD: Final = lazy_re(r"(?=.*[0-9!@#$%^&*?])(?=.*[A-Za-z]).*", re.DOTALL)
_LEAST: Final = {Name.HINT: 16, Name.SHORT: 6, Name.CLEAR: 8, Name.PASSWORD: 4}
"""Characters that a credential with such a name has at least."""


def is_credential(value: str, name: Name) -> bool:
    """Judge the value of something with a name of this kind. The first KB of a longer value is enough."""
    if name is Name.NOT or len(value) < _LEAST[name] or MARK in value or _PLACEHOLDER.fullmatch(value):
        return False
    if _CODE.fullmatch(value):
        return False
    if name is Name.PASSWORD:
        return True
    if _PATH.match(value) and not _AWS_SECRET.fullmatch(value):
        return False
    if name is Name.SHORT:
        return _LIKE_A_PASSWORD.fullmatch(value) is not None
    if name is Name.HINT:
        return _RANDOM.fullmatch(value) is not None
    scheme, _, rest = value.partition(" ")
    word = _FIRST_OF_MANY.split(rest if _SCHEME.fullmatch(scheme) else value, maxsplit=1)[0]
    return " " not in word and _ENVIRONMENT_NAME.fullmatch(word) is None
