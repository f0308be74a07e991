"""The words for time, for kinds of things and for columns: the one source for the command line, the HTML
report and the page. They are in terms.md and tables.md, with what each table
is about. Also which credentials of a trace are left out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.collective_kinds import DDP
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Credential
from tb_gpudiag.wording.format import count, in_quotes


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
        if self.phrase:
            return self.phrase
        first = self.word.split()[0]
        keeps = first in {"Python", "GPU", "CPU", "CUDA"}
        return self.word if keeps else self.word[:1].lower() + self.word[1:]


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
