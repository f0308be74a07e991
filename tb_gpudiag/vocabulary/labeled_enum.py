"""Enumerations whose members have a word each."""

from __future__ import annotations

from enum import IntEnum


class LabeledEnum(IntEnum):
    """Numbers for arrays, and a word for reports."""

    @property
    def label(self) -> str:
        return self.name.lower()
