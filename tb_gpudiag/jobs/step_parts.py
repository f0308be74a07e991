"""What reports on jobs share: parts of a step, and differences, in words; and what the findings of digests
are about: a digest names their rules, and nothing more of these.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from tb_gpudiag.rules.rule import Topic
from tb_gpudiag.wording.format import time_ns
from tb_gpudiag.wording.vocabulary import CAUSES, WORK_PARTS, Term, term

OTHER: Final = "other"
"""Part of a step that its digest attributes to nothing."""

_OTHER: Final = Term(OTHER, "Not attributed", "Time that the digest attributes to nothing.")


def part_term(part: str) -> Term:
    """Return the words for a part of a step: work, or a cause of idle time."""
    return _OTHER if part == OTHER else term(WORK_PARTS if part in WORK_PARTS else CAUSES, part)


def part_noun(part: str) -> str:
    """Return the name of a part in a sentence."""
    return part_term(part).noun


def change_of_part(part: str, moved_ns: float) -> str:
    """Return how much longer or shorter a part has become: `58.2 ms less data loading`."""
    return f"{time_ns(abs(moved_ns))} {'less' if moved_ns < 0 else 'more'} {part_noun(part)}"


def signed_ns(nanoseconds: float) -> str:
    """Return a time with its sign, such as `+1.20 ms`."""
    text = time_ns(nanoseconds)
    return text if nanoseconds < 0 or text.startswith("0") else f"+{text}"


@cache
def ids_of(topic: Topic) -> frozenset[str]:
    """Return the ids of the rules on traces that are about this."""
    from tb_gpudiag.rules.all import RULES  # on use: all rules take a while to import

    return frozenset(rule.id for rule in RULES if rule.topic == topic)
