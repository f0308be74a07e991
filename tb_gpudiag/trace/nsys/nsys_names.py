"""Processes and texts of an export of Nsight Systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.made_parts import ID_BITS, texts_of
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database

_UNNAMED: Final = "[unnamed]"
# Correlations count the calls of one process.
_CORRELATION_BITS: Final = 40


class Processes:
    """Numbers the processes of a report in the order in which they appear. Ids are CUPTI's per process."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def number(self, global_id: Int64) -> Int64:
        """Return the number of each process, from the global id of the process or of a thread of it.

        In old versions, GPU work has no global id: it belongs to the first process.
        """
        ids, own = np.unique(global_id >> ID_BITS, return_inverse=True)
        numbers = [
            0 if i == MISSING >> ID_BITS else self._known.setdefault(i, len(self._known))
            for i in ids.tolist()
        ]
        return np.array(numbers, np.int64)[own]

    def correlation(self, global_id: Int64, correlation: Int64) -> Int64:
        """Return correlations that differ between processes; NONE where a row has none."""
        known = (correlation > 0) & (correlation < 1 << _CORRELATION_BITS)
        return np.where(
            known, (self.number(global_id) << _CORRELATION_BITS) | np.where(known, correlation, 0), NONE
        )


def named(database: Database, ids: Int64, shown: Callable[[str], str] = str) -> pa.DictionaryArray:
    """Return the texts with these ids. shown: changes each text."""
    known = database.strings(ids)
    return texts_of(ids, lambda i: shown(known.get(i) or _UNNAMED))
