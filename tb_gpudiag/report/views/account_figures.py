"""The figures of an Account as text, the same in every format."""

from __future__ import annotations

from typing import NamedTuple

from tb_gpudiag.report.views.document import Account
from tb_gpudiag.wording.format import column_us, share

WINDOW = "step window"
"""Label of an account's last row."""

WHOLE = share(1.0)


class Row(NamedTuple):
    """A part of an account. `fraction` of the step window is the length of its bar."""

    id: str
    label: str
    time: str
    share: str
    fraction: float


def account_rows(account: Account) -> list[Row]:
    """Rows of the account. Printed times add up to the printed total."""
    times, _ = _times(account)
    return [
        Row(part.id, part.label, time, share(part.us, account.window_us), part.us / account.window_us)
        for part, time in zip(account.parts, times, strict=True)
    ]


def account_total(account: Account) -> str:
    """Length of the step window, in the unit of the rows."""
    return _times(account)[1]


def _times(account: Account) -> tuple[list[str], str]:
    return column_us([part.us for part in account.parts], account.window_us)
