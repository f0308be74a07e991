"""What rules found, together."""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING

from tb_gpudiag.errors import place_of
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Severity
from tb_gpudiag.rules.rule import AnyRule

if TYPE_CHECKING:
    from tb_gpudiag.rules.savings import PlannedFix

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RuleFinding:
    """A finding with the rule that made it and its severity by the rule's policy."""

    rule: AnyRule
    finding: Finding
    severity: Severity


@dataclass(frozen=True, eq=False)
class Outcome:
    """Every rule's answer.

    Findings are ordered by severity, then by the middle of what their fix saves. Time and memory are compared
    as shares of what the job has: a fix's saving as a share of the step window; memory held, or grown by the
    horizon (out_of_memory.py), as a share of the device's memory. A leak or a failed allocation that is an
    ERROR ends the job, so it comes before anything that only makes the job slow. `clear` and `unchecked` are
    ordered by rule id.
    """

    findings: list[RuleFinding]
    clear: list[tuple[AnyRule, Clear]]
    unchecked: list[tuple[AnyRule, CannotTell]]
    plan: list[PlannedFix] = field(default_factory=list)  # indices into findings


def crashed(rule: AnyRule, error: Exception) -> CannotTell:
    """Log the error that a rule has raised, and return the rule's answer."""
    log.error("rule %s (%s) crashed", rule.id, rule.name, exc_info=error)
    # Its place in the code, not its message: that may contain anything from the trace.
    return CannotTell(f"could not check because of a bug in gpudiag: {place_of(error)}", defect=True)
