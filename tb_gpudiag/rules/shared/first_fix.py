"""What to fix first, where that is not what limits the job."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.rules.answer import Saving, Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.wording.format import share

_HOST = frozenset({"launch", "python", "compile"})

# The limiters that a finding is about.
_ABOUT = {
    "GD101": frozenset({"input"}),
    "GD102": _HOST | {"input"},  # making random tensors counts as data loading
    "GD103": frozenset({"memory"}),
    "GD104": _HOST,
    "GD201": _HOST,
    "GD202": _HOST,
    "GD203": frozenset({"launch"}),
    "GD301": frozenset({"sync"}),
    "GD302": frozenset({"copy", "sync"}),
    "GD303": frozenset({"copy"}),
    "GD304": frozenset({"copy"}),
    "GD601": frozenset({"communication"}),
}

# These verdicts name no cause that a finding could differ from.
_NO_CAUSE = frozenset({"compute", "mixed", "unknown", "initialization"})


def first_fix_sentence(limiter: str, ranked: Sequence[RuleFinding], window_ns: int) -> str:
    """Say why the first finding about time is about something else than the limiter; "" if it is not.

    ranked: all findings, in their order.
    """
    for found in ranked:
        saving = found.finding.saving
        if found.severity > Severity.INFO and found.finding.cost_ns and saving is not None and saving.high_ns:
            same = limiter in _NO_CAUSE or limiter in _ABOUT.get(found.rule.id, ())
            return "" if same else _comes_first(found.rule, saving, window_ns)
    return ""


def _comes_first(rule: AnyRule, saving: Saving, window_ns: int) -> str:
    saved = f"surely saves {share(saving.low_ns, window_ns)}"
    if not saving.low_ns:
        saved = f"may save up to {share(saving.high_ns, window_ns)}"
    return f"{rule.title} ({rule.id}) comes first: fixing it {saved} of the time."
