"""The words for time, for kinds of things and for columns: the one source for the command line, the HTML
reports, the page and the documentation, which also has the terms of glossary.md and useful queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.collective_kinds import DDP
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Credential
from tb_gpudiag.wording.format import count, in_quotes, in_sentence


@dataclass(frozen=True)
class Term:
    """One id in words.

    word: as a label on the page. explanation: one sentence, shown as a tooltip. phrase: as a noun in a
    sentence; the word in lower case unless given.
    """

    id: str
    word: str
    explanation: str
    phrase: str = ""

    @property
    def noun(self) -> str:
        """The term inside a sentence."""
        return self.phrase or (self.word if self.word.startswith("Python") else in_sentence(self.word))


Terms = Mapping[str, Term]
"""Id -> term, in the order in which they are shown."""


def term(among: Terms, id: str) -> Term:
    """Return the term of an id. An id that the table lacks is shown as it is."""
    return among.get(id) or Term(id, id, "", phrase=id)


_HEADING: Final = lazy_re(r"(\w+)(?: \((.+)\))?\n")


def _tables() -> tuple[dict[str, Terms], dict[str, Terms]]:
    """Return the tables by name, and those that the glossary has by what their ids stand for."""
    text = Path(__file__).with_name("terms.md").read_text(encoding="utf-8")
    by_name: dict[str, Terms] = {}
    by_kind: dict[str, Terms] = {}
    for section in text.split("\n## ")[1:]:
        heading = _HEADING.match(section)
        assert heading is not None, section
        rows = section.partition("--- |\n")[2].strip().split("\n")
        terms = [Term(*(cell.strip() for cell in row.split("|")[1:-1])) for row in rows]
        by_name[heading[1]] = {each.id: each for each in terms}
        if heading[2]:
            by_kind[heading[2]] = by_name[heading[1]]
    return by_name, by_kind


TABLES, KINDS_OF_TERMS = _tables()

WORK_PARTS = TABLES["WORK_PARTS"]
CAUSES = TABLES["CAUSES"]
LIMITERS = TABLES["LIMITERS"]
FAMILIES = TABLES["FAMILIES"]
EXPOSURE_REASONS = TABLES["EXPOSURE_REASONS"]
MFU_PARTS = TABLES["MFU_PARTS"]
ENGINE_KINDS = TABLES["ENGINE_KINDS"]
MEMORY_KINDS = TABLES["MEMORY_KINDS"]
SYNC_KINDS = TABLES["SYNC_KINDS"]
COLLECTIVE_KINDS = TABLES["COLLECTIVE_KINDS"]
HOST_KINDS = TABLES["HOST_KINDS"]
STEP_SIGNS = TABLES["STEP_SIGNS"]
PHASES = TABLES["PHASES"]
TREND_STATES = TABLES["TREND_STATES"]
FILE_KINDS = TABLES["FILE_KINDS"]
HANG_STATES = TABLES["HANG_STATES"]
CLOCK_PHASES = TABLES["CLOCK_PHASES"]
MEMORY_FIGURES = TABLES["MEMORY_FIGURES"]
COLUMNS = TABLES["COLUMNS"]


class ColumnWords(NamedTuple):
    """A column of a table of reports. kind, shown: see tables.md."""

    id: str
    title: str
    kind: str
    shown: str
    explanation: str


class TableWords(NamedTuple):
    """A table of reports. about: what its rows have in common."""

    title: str
    about: str
    columns: tuple[ColumnWords, ...]


@cache
def report_tables() -> dict[str, TableWords]:
    text = Path(__file__).with_name("tables.md").read_text(encoding="utf-8")
    found = {}
    for section in text.split("\n## ")[1:]:
        heading, about, _, _, *rows = filter(None, section.split("\n"))
        id, _, title = heading.partition(": ")
        cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
        found[id] = TableWords(title, about, tuple(ColumnWords(*row) for row in cells))
    return found


def collective(name: str) -> Term:
    """Return the term of a collective, however its name is written: AllReduce, all_reduce. The word for
    one that is not known is its name, in quotes."""
    known = COLLECTIVE_KINDS.get(name.replace("_", "").lower())
    word = in_quotes(name, 60)
    return known or Term(name, word, "", phrase=word)


def unit_text(parallelism: str, unit: str, number: int, of: int) -> str:
    """What a collective is for: `layers.3`, `bucket 4 of 5`, `number 3 of 12 in a step`; "" where the trace
    does not say. number: from 1; lower if the trace does not say."""
    if unit or number < 1:
        return unit
    return f"bucket {number} of {of}" if parallelism == DDP else f"number {number} of {of} in a step"


def limiter_word(limiter: str, *, on_gpu: bool) -> str:
    """Return the word for a limiter. Without a GPU, computing is the CPU's."""
    if limiter == "compute" and not on_gpu:
        return "CPU computing"
    return term(LIMITERS, limiter).word


def bottleneck(word: str) -> str:
    """How a verdict begins."""
    return f"Bottleneck: {word}"


def credential_words(credential: Credential) -> str:
    """`“HF_TOKEN” (Hugging Face token)`: the name, and what the value looks like."""
    if not credential.name:
        return credential.form or "others"
    return in_quotes(credential.name, 60) + (f" ({credential.form})" if credential.form else "")


def left_out(places: int, what: str, at_least: str = "") -> str:
    """Say how many credentials a trace has, and that `what`, which is made of it, is without them.

    at_least: "at least ", if there may be more places.
    """
    found = f"{at_least}{count(places, 'place')}"
    return f"The trace has credentials, in {found}. {what} is without those that were found."


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
