"""What looks like a credential: values of a known form, whatever their name; names of tokens, keys and
passwords; and which texts may hold one at all.

A value is judged by its name (`HF_TOKEN`, `dbPassword`) or, whatever its name, by a form that only a
credential has (`ghp_...`, a URL with a password). Harmless names also contain such words (`pad_token`, `PWD`,
`TOKENIZERS_PARALLELISM`, `GPG_KEY`).

`credential_forms.tsv` has a form on each line: its name; an expression for how its values start, at the start
of a word, or anywhere after `*`; an expression for what follows, in which `value` is the credential if it is
not all. The starts and lengths are facts that their services publish; most are collected in the rules of
gitleaks (https://github.com/gitleaks/gitleaks). Lengths there are lower bounds, because services make them
longer. What has no start of its own (the hexadecimal key of a service, say) is found by its name only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
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
    ends_as_secret = last.endswith("apikey") or (before, last) == ("connection", "string")
    if _SECRET_WORDS.intersection(words) or ends_as_secret:
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


_INSIDE: Final = "*"
_SPACE: Final = "␣"
# A word before a value ends with one of these: a character, an escaped one, or one that is coded in a URL.
_BOUNDARY: Final = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))"
_LONGEST_START: Final = 40
# A form is matched within so many bytes, and goes on while such characters follow: a JSON web token has a
# thousand, and a private key 13,000.
_LONGEST: Final = 16 << 10
_REST: Final = lazy_re(rb"[A-Za-z0-9_.+/=\-]*")


class FoundForm(NamedTuple):
    """A value of a known form, from `start` to before `end`."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class _Form:
    name: str
    starts: list[str]
    rest: str
    inside: bool  # it may start within a word

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """Matches values of this form. Most forms are in no trace, and are never compiled."""
        starts = "|".join(map(re.escape, self.starts))
        bounded = re.sub(r"\{(\d+),\}", r"{\1,2000}", self.rest)
        return lazy_re(f"(?:{starts})(?:{bounded})".encode("ascii"))


def _read(line: str) -> _Form:
    name, starts, rest = line.split("\t")
    inside = starts.startswith(_INSIDE)
    return _Form(
        name, [start.replace(_SPACE, " ") for start in starts.removeprefix(_INSIDE).split(" ")], rest, inside
    )


@lru_cache(1)
def _forms() -> list[_Form]:
    text = Path(__file__).with_name("credential_forms.tsv").read_text(encoding="utf-8")
    return [_read(line) for line in text.splitlines() if not line.startswith("#")]


@lru_cache(1)
def _starts() -> tuple[re.Pattern[bytes], dict[bytes, list[_Form]]]:
    """Return an expression for the starts of all forms, and the forms by two characters of these."""
    alternatives: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    by_start: dict[bytes, list[_Form]] = {}
    for form in _forms():
        for start in form.starts:
            alternatives[form.inside].setdefault(start[0], []).append(re.escape(start[1:]))
        for head in {start[:2].encode("ascii") for start in form.starts}:
            by_start.setdefault(head, []).append(form)
    # Python's expressions look up the first character of each alternative.
    at_word, inside = (
        "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in alternatives[where].items())
        for where in (False, True)
    )
    return lazy_re(
        b"%s(?:%s)|(?:%s)" % (_BOUNDARY, at_word.encode("ascii"), inside.encode("ascii"))
    ), by_start


def forms_in(text: bytes, stop: int) -> Iterator[FoundForm]:
    """Yield the values of known forms that start before `stop`, in order."""
    starts, by_start = _starts()
    at = 0
    while (place := starts.search(text, at, stop + _LONGEST_START)) is not None and place.start() < stop:
        begin = place.start()
        at = begin + 1
        for form in by_start[text[begin : begin + 2]]:
            match = form.expression.match(text, begin, begin + _LONGEST)
            if match is not None:
                start, end = match.span("value" if "value" in form.expression.groupindex else 0)
                rest = _REST.match(text, end)
                at = max(match.end(), end if rest is None else rest.end())
                yield FoundForm(start, end if rest is None else rest.end(), form.name)
                break


@lru_cache(1)
def candidates() -> str:
    """Return an expression for RE2: a text in which it matches nothing has no credential.

    It matches how a value starts, by its form or after a name that may announce it; URLs with a user; and
    characters that are coded for no reason, which can hide any of these.
    """
    at_word, anywhere = (
        "|".join(re.escape(start) for form in _forms() if form.inside is inside for start in form.starts)
        for inside in (False, True)
    )
    return "|".join(
        (
            rf"(?:\A|\W|\\[nrt]|%[0-9A-F]{{2}})(?:{at_word})|{anywhere}",
            rf"(?:{_ANNOUNCES})(?:{_BEFORE_VALUE}[^\s\"'`,;=(){{}}](?s:.{{3}})|{_BEFORE_VALUE}[{{\[])",
            rf"-[\w.\-]*(?:{_ANNOUNCES})[ \t]+[^\s-]{{4}}",
            r"[Vv](?i:alue)\\*[\"']\s*:\s*\\*[\"']",
            r":\\*/\\*/[^\s\"'<>?#]*@",
            r"\\u00[2-7]|%(?:3[dD]|2[27])|&quot;|&#3[49];",
        )
    )


# A part of a name that `kind_of_name` takes for a credential's, and what may follow it there.
_ANNOUNCES: Final = (
    r"(?i:(?:passw|passphrase|passcode|secret|cred|authorization|bearer|cookie|jwt)[\w.\- /:]*"
    rf"|(?:token|pass|pwd|pw|auth|(?:{'|'.join(sorted(KEYS))})[_. \-]?key|connection[_. \-]?string)[\d_.\-]*)"
    r"|_KEY[\d_.\-]*"
)
_BEFORE_VALUE: Final = (
    r"(?:\\*[\"'`])?[)\]]?\s*(?::?\s*str(?:ing)?\s*)?(?:=>|[:.?+|]{0,3}=|[:,]|>)(?:\s|\\+[nrt])*"
    r"(?:\\*[\"'`])?"
)
