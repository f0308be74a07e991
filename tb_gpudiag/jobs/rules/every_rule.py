"""All rules together, on traces and on jobs: for `gpudiag explain`, the documentation and the page."""

from __future__ import annotations

from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.rule import AnyRule

EVERY_RULE: tuple[AnyRule, ...] = (*RULES, *JOB_RULES)


def find_any_rule(key: str) -> AnyRule | None:
    """Find a rule on a trace or on a job by id or name, ignoring case; of a finding's name such as
    "host_bound/logging", the part before the case."""
    wanted = key.strip().lower().replace("-", "_").partition("/")[0]
    return next((rule for rule in EVERY_RULE if wanted in {rule.id.lower(), rule.name}), None)
