r"""Values that are credentials whatever their name, and which texts may hold a credential at all.

`credential_forms.tsv` has a form on each line: its name; an expression for how its values start, at the start
of a word, or anywhere after `*`; an expression for what follows, in which `value` is the credential if it is
not all. The starts and lengths are facts that their services publish; most are collected in the rules of
gitleaks (https://github.com/gitleaks/gitleaks). Lengths there are lower bounds, because services make them
longer. What has no start of its own (the hexadecimal key of a service, say) is found by its name only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.credential_names import KEYS
from tb_gpudiag.vocabulary.patterns import lazy_re

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
