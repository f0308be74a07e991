"""--fail-on: rule ids and severities at which a command exits with status 1."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tb_gpudiag.errors import UsageError

if TYPE_CHECKING:
    from tb_gpudiag.report import report_pb2 as pb

FailOn = str | int
"""A rule's id, or the least severity."""


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        metavar="ID|SEVERITY",
        nargs="+",
        action="extend",
        default=[],
        help="exit with status 1 if this rule finds something, or if a finding has at least this severity "
        "(info, warning, error)",
    )


def sort_out(fail_on: list[str], paths: list[str]) -> tuple[list[FailOn], list[str]]:
    """Return the --fail-on conditions as rule ids and severities, and the paths.

    argparse takes DIR in `--fail-on warning DIR` as a condition. A word that is not an id or a severity, but
    exists, is a path.
    """
    conditions: list[FailOn] = []
    paths = list(paths)
    if not fail_on:
        return conditions, paths
    from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule  # all rules take a while to import
    from tb_gpudiag.rules.answer import Severity

    for word in (part for value in fail_on for part in value.split(",") if part):
        rule = find_any_rule(word)
        if rule is not None:
            conditions.append(rule.id)
        elif word.upper() in Severity.__members__:
            conditions.append(Severity[word.upper()])
        elif os.path.exists(word) or "://" in word:
            paths.append(word)
        else:
            raise UsageError(
                "--fail-on takes rule ids and severities",
                where=word,
                remedy=f"severities: info, warning, error; ids: {', '.join(rule.id for rule in EVERY_RULE)}",
            )
    return conditions, paths


def is_met(findings: Iterable[pb.Finding], conditions: list[FailOn]) -> bool:
    return any(
        finding.severity >= condition if isinstance(condition, int) else finding.rule == condition
        for finding in findings
        for condition in conditions
    )
