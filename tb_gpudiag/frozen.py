"""Dataclasses that are cheap to define.

Defining a frozen dataclass takes Python three times as long as another one, and a short command spent a tenth
of its time on three hundred of them. So only the type checker, which sees the standard library's `dataclass`,
refuses to assign to their fields. They compare and hash as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        return dataclasses.dataclass(cls, eq=eq, unsafe_hash=frozen and eq, **options)
