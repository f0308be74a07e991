"""How many planted credentials are found: the forms of a published collection, and places in traces."""

from __future__ import annotations

import json
import random
import re
import string
from pathlib import Path
from typing import Final

import pytest

from tb_gpudiag.trace.credentials.credentials import CredentialFilter
from tests.trace.credentials.planted import planted

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
    return "".join(
        chance.choice([c for c in string.printable if re.fullmatch(part, c)])
        for part, times in parts
        for _ in range(int(times or 1))
    )


def test_nothing_of_a_planted_credential_is_left() -> None:
    for text, secret in planted():
        clean = scrubbed(text.encode())
        assert "[removed]" in clean.decode(), text
        shown = json.dumps(json.loads(clean)).replace("\\", "")
        written = secret.replace("\n", "n")
        for start in range(len(written) - 3):
            assert written[start : start + 4] not in shown, text
        for block in (1, 7, 50):
            assert scrubbed(text.encode(), block) == clean, text
    assert scrubbed(clean) == clean
