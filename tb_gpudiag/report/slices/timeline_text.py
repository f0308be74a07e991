"""String tables as two arrays: all strings in UTF-8, one after another, and where each begins. Like all other
arrays they can be mapped into memory, so only strings that are shown are read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int64, UInt8

# Mangled C++ names have up to thousands of characters. Longer ones are cut off.
LONGEST = 300


class TextTable:
    """Collects strings and stores each once."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = [_shortened(text) for text in texts]
        self._index: dict[str, int] = {}

    def add(self, text: str, longest: int = LONGEST) -> int:
        """Return the index of this text, cut off at `longest` characters."""
        text = _shortened(text, longest)
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self._texts)
            self._texts.append(text)
        return index

    def arrays(self) -> tuple[UInt8, Int64]:
        """Return the bytes of all strings, and where each begins, shape (strings + 1,)."""
        encoded = [text.encode("utf-8", "replace") for text in self._texts]
        first = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), first


def text_at(text: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], index: int) -> str:
    """Return a string of the table."""
    return bytes(text[int(first[index]) : int(first[index + 1])]).decode("utf-8", "replace")


def _shortened(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
