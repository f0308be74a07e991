"""The rules. Their order matters: where two would claim the same idle time, the earlier keeps it."""

from __future__ import annotations

from tb_gpudiag.rules.rule import Rule

RULES: tuple[Rule, ...] = ()


def find_rule(key: str) -> Rule | None:
    """The rule with this id or name, in any case."""
    wanted = key.strip().lower().replace("-", "_")
    return next((rule for rule in RULES if wanted in {rule.id.lower(), rule.name}), None)
