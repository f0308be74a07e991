"""What the documentation shows: the terms of glossary.md and of the vocabulary, and the useful queries of
sql_questions.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.vocabulary import KINDS_OF_TERMS


@dataclass(frozen=True)
class GlossaryEntry:
    """A term, one paragraph about it, and the terms to read next.

    what: what an id stands for. also: other words for the term.
    """

    name: str
    text: str
    see_also: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    id: str = ""
    what: str = ""

    @property
    def page(self) -> str:
        """The entry as Markdown."""
        title = f"# {self.name}" + (f" ({self.what} `{self.id}`)" if self.what else "")
        also = f"\n\nAlso called: {', '.join(self.also)}." if self.also else ""
        see = f"\n\nSee also: {', '.join(self.see_also)}." if self.see_also else ""
        return f"{title}\n\n{self.text}{also}{see}\n"


@cache
def concepts() -> tuple[GlossaryEntry, ...]:
    """Return the terms of glossary.md, in its order."""
    text = (resources.files("tb_gpudiag.wording") / "glossary.md").read_text(encoding="utf-8")
    return tuple(_concepts(text))


def _concepts(text: str) -> Iterator[GlossaryEntry]:
    for section in text.split("\n## ")[1:]:
        name, _, body = section.partition("\n")
        text, _, see = " ".join(body.split()).partition(" See also: ")
        paragraph, _, also = text.partition(" Also called: ")
        yield GlossaryEntry(name, paragraph, _words(see), _words(also))


def _words(listed: str) -> tuple[str, ...]:
    return tuple(listed.rstrip(".").split(", ")) if listed else ()


def entries() -> list[GlossaryEntry]:
    """Return all terms: the concepts, then those of the vocabulary, table by table."""
    return [
        *concepts(),
        *(
            GlossaryEntry(each.word, each.explanation, id=each.id, what=what)
            for what, table in KINDS_OF_TERMS.items()
            for each in table.values()
        ),
    ]


def find(name: str) -> list[GlossaryEntry]:
    """Return the entries of a name or an id, however it is written: step-window, Step_windows."""
    wanted = key(name)
    singular = {wanted, wanted.removesuffix("s"), wanted.removesuffix("es")}
    return [each for each in entries() if singular & {key(word) for word in (each.name, each.id, *each.also)}]


def key(name: str) -> str:
    """Return what spellings of a name have in common."""
    return re.sub(r"[\W_]+", " ", name.lower()).strip()


class SqlQuestion(NamedTuple):
    """A question about a trace, and the query that answers it."""

    question: str
    query: str


_SECTION: Final = lazy_re(r"^## ([^\n]+)\n\n```sql\n(.+?)\n```$", re.MULTILINE | re.DOTALL)
_TEXT: Final = Path(__file__).with_name("sql_questions.md").read_text(encoding="utf-8")

QUESTIONS: Final = tuple(SqlQuestion(*found) for found in _SECTION.findall(_TEXT))
