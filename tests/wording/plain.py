"""What is shown, with ordinary spaces, for tests that are not about spacing."""

from __future__ import annotations

from tb_gpudiag.wording.format import NO_BREAK


def plain(text: str) -> str:
    """The text without no-break spaces."""
    return text.replace(NO_BREAK, " ")
