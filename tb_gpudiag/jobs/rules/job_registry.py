"""The rules on jobs, and all rules together: for `gpudiag explain`, the documentation and the page."""

from __future__ import annotations

from tb_gpudiag.jobs.rules import (
    communication_overlap,
    late_recording,
    mismatched_collectives,
    slow_link,
    slow_rank,
    uneven_work,
)
from tb_gpudiag.jobs.rules.job_rule import JobRule
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.rule import AnyRule

JOB_RULES: tuple[JobRule, ...] = (
    slow_rank.RULE,
    uneven_work.RULE,
    slow_link.RULE,
    mismatched_collectives.RULE,
    late_recording.RULE,
    communication_overlap.RULE,
)

EVERY_RULE: tuple[AnyRule, ...] = (*RULES, *JOB_RULES)


def find_any_rule(key: str) -> AnyRule | None:
    """Find a rule on a trace or on a job by id or name, ignoring case."""
    wanted = key.strip().lower().replace("-", "_")
    return next((rule for rule in EVERY_RULE if wanted in {rule.id.lower(), rule.name}), None)
