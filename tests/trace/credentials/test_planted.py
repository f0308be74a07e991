"""How many planted credentials are found: the forms of a published collection, and places in traces."""

from __future__ import annotations

import json
import random
import re
import string
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tb_gpudiag.trace.credentials.removing import CredentialFilter, cleaned
from tests.trace.credentials.planted import TEXTS, planted

# (identifier, secret) of the test cases that gitleaks generates for its rules, written as expressions, and
# how it writes them in files. See the licence beside it.
GITLEAKS: Final = Path(__file__).parent / "gitleaks"
WRITTEN: Final = (
    *('{i}Token="{s}"', '{i}Token = "{s}"', "{i}Token={s}", "{i}Token = {s}", '{\n    "{i}_token": "{s}"\n}'),
    *('{"config.ini": "{I}_TOKEN={s}\\nBACKUP_ENABLED=true"}', "<{i}Token>\n    {s}\n</{i}Token>"),
    *("{i}_token: {s}", "{i}_token: '{s}'", '{i}_token: "{s}"', 'string {i}Token = "{s}";'),
    *('var {i}Token string = "{s}"', '{i}Token := "{s}"', "{i}Token := `{s}`", 'String {i}Token = "{s}";'),
    *('var {i}Token = "{s}"', '${i}Token .= "{s}"', "{i}Token = '{s}'", '{i}Token = "{s}"'),
    *('System.setProperty("{I}_TOKEN", "{s}")', '  "{i}Token" => "{s}"', '{i}_TOKEN = "{s}"'),
    *('{i}_TOKEN := "{s}"', '{i}_TOKEN ::= "{s}"', '{i}_TOKEN :::= "{s}"', '{i}_TOKEN ?= "{s}"'),
)
LEAST_FOUND: Final = 0.95


def scrubbed(text: bytes, block: int | None = None) -> bytes:
    found = CredentialFilter()
    step = block or len(text)
    return b"".join([*(found.feed(text[i : i + step]) for i in range(0, len(text), step)), found.end()])


@pytest.mark.slow
def test_what_gitleaks_knows_is_removed() -> None:
    chance = random.Random(28)
    cases, left = 0, []
    for line in (GITLEAKS / "secrets.tsv").read_text().splitlines():
        identifier, expression = line.split("\t")
        for written in WRITTEN:
            secret = _made(expression, chance)
            text = (
                written.replace("{i}", identifier).replace("{I}", identifier.upper()).replace("{s}", secret)
            )
            clean = json.loads(scrubbed(json.dumps({"name": text}).encode()))
            cases += 1
            left += [text] if secret in clean["name"] else []
    assert cases > 5_000
    assert len(left) <= (1 - LEAST_FOUND) * cases, left


def _made(expression: str, chance: random.Random) -> str:
    """Make a text that matches an expression of characters, classes and counts."""
    parts = re.findall(r"(\[[^\]]+\]|\\.|.)(?:\{(\d+)\})?", expression)
    return "".join(chance.choice(_matching(part)) for part, times in parts for _ in range(int(times or 1)))


@cache
def _matching(part: str) -> list[str]:
    return [c for c in string.printable if re.fullmatch(part, c)]


AMONG: Final = json.dumps({"ph": "X", "name": "aten::mul", "args": {"Input Dims": [[1, 2]]}}).encode() + b","


def _left_of(secret: str, clean: bytes) -> list[str]:
    """Parts of a credential, of four characters each, that are still there."""
    shown = json.dumps(json.loads(clean)).replace("\\", "")
    written = secret.replace("\n", "n")
    return [written[i : i + 4] for i in range(len(written) - 3) if written[i : i + 4] in shown]


def test_nothing_of_a_planted_credential_is_left() -> None:
    for text, secret in planted():
        clean = scrubbed(text.encode())
        assert "[removed]" in clean.decode(), text
        assert not _left_of(secret, clean), text
        assert scrubbed(clean) == clean


def test_each_is_found_among_many_events() -> None:
    """RE2 passes over long texts first."""
    texts = planted()
    whole = b"[" + b"".join(AMONG * 60 + text.encode() + b"," for text, _ in texts) + b"0]"
    clean = scrubbed(whole, 100_007)
    assert len(json.loads(clean)) == 61 * len(texts) + 1
    for text, secret in texts:
        assert text.encode() not in clean, text
        assert len(secret) < 12 or secret.encode() not in clean, text


@pytest.mark.parametrize("level", [1, 2])
def test_each_is_found_where_its_letters_are_escaped(level: int) -> None:
    for text, secret in planted()[: len(TEXTS)]:
        if "\\\\u" in text or "%" in text or "&" in text:
            continue  # coded already
        plain = text if level == 1 else json.dumps({"inner": text})
        clean = scrubbed(re.sub(r"[A-Za-z0-9_=-]+", _escaped, plain).encode())
        assert "[removed]" in clean.decode(), text
        assert not _left_of(secret, clean if level == 1 else json.loads(clean)["inner"].encode()), text


def _escaped(match: re.Match[str]) -> str:
    """Letters as codes, but for those that are part of an escape."""
    before = match.string[: match.start()]
    if (len(before) - len(before.rstrip("\\"))) % 2:
        return match.group()
    return "".join(f"\\u{ord(character):04x}" for character in match.group())


@dataclass(frozen=True)
class Inner:
    text: str
    number: int = 0


class Pair(NamedTuple):
    first: str
    second: Inner


@dataclass(frozen=True)
class Product:
    texts: list[str]
    pair: Pair
    by_name: dict[str, tuple[str, ...]]
    numbers: list[int]


def test_no_field_of_a_product_keeps_one() -> None:
    for text, secret in TEXTS:
        planted_text = text.replace("{s}", secret)
        made = Product([planted_text, "aten::mul"], Pair(planted_text, Inner(planted_text)), {}, [1])
        made.by_name[planted_text] = (planted_text, "b")
        found = cleaned(made)
        assert repr(found).count("[removed]") == 5, text
        assert secret not in repr(found), text
        assert (found.texts[1], found.numbers) == ("aten::mul", [1])


def test_a_product_without_credentials_is_returned_as_it_is() -> None:
    made = Product(["aten::mul"], Pair("a", Inner("b")), {"HF_TOKEN": ("unset",)}, [1])
    assert cleaned(made) is made


def test_a_value_is_judged_by_its_key() -> None:
    found = cleaned({"DB_PASSWORD": "hunter2", "b": "hunter"})
    assert found == {"DB_PASSWORD": "[removed]", "b": "hunter"}
