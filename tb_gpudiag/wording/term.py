"""One id in words: the building block of vocabulary.py and kinds.py."""

from __future__ import annotations

from collections.abc import Mapping

from tb_gpudiag.frozen import dataclass


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


def table(*terms: Term) -> Terms:
    """Make a table of these terms, in this order."""
    return {each.id: each for each in terms}
