"""What the findings of digests are about: a digest names their rules, and nothing more of these."""

from __future__ import annotations

from functools import cache

from tb_gpudiag.rules.rule import Topic


@cache
def ids_of(topic: Topic) -> frozenset[str]:
    """Return the ids of the rules on traces that are about this."""
    from tb_gpudiag.rules.all import RULES  # on use: all rules take a while to import

    return frozenset(rule.id for rule in RULES if rule.topic == topic)
