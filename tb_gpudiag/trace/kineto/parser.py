"""Parse JSON text into columns: with the compiled scanner, or with DuckDB if that cannot."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Bool
from tb_gpudiag.trace.kineto import scanned
from tb_gpudiag.trace.kineto.columns import Part, part_of
from tb_gpudiag.trace.kineto.scanned import GivenUp, Scanner
from tb_gpudiag.trace.kineto.structure import MOST_ELEMENTS

if TYPE_CHECKING:
    from tb_gpudiag.trace.kineto.duckdb_parser import DuckDBParser


class Parser:
    """Parser for one thread."""

    def __init__(self, columns_lock: Lock | None = None) -> None:
        """columns_lock: shared by parsers that work at the same time. Making columns is some hundred short
        NumPy calls. Two threads at it keep taking Python's lock from each other, which doubles the CPU time.
        """
        self._columns_lock = columns_lock or Lock()
        self._scanner = Scanner(MOST_ELEMENTS) if scanned.available() else None
        self._duckdb: DuckDBParser | None = None

    def close(self) -> None:
        """Free the memory."""
        if self._duckdb is not None:
            self._duckdb.close()

    def parse(self, text: bytes) -> Part | None:
        """Parse a JSON array of events.

        Return None if the text is not JSON, or has more than MOST_ELEMENTS elements.
        """
        part = self._scan(text)
        return self._with_duckdb().parse(text) if part is None else part

    def valid(self, texts: list[bytes]) -> Bool:
        """Mask of the texts that are JSON, shape (len(texts),)."""
        return self._with_duckdb().valid(texts) if texts else np.zeros(0, np.bool_)

    def _scan(self, text: bytes) -> Part | None:
        """Read the events with the compiled scanner; return None if it cannot."""
        if self._scanner is None:
            return None
        fields = self._scanner.scan(text, lambda: self._counters(text))
        if fields is None:
            return None
        try:
            with self._columns_lock:
                return part_of(fields)
        except GivenUp:
            return None

    def _counters(self, text: bytes) -> dict[str, pa.Array]:
        return self._with_duckdb().seldom(text, "counters")

    def _with_duckdb(self) -> DuckDBParser:
        if self._duckdb is None:
            from tb_gpudiag.trace.kineto.duckdb_parser import DuckDBParser

            self._duckdb = DuckDBParser()
        return self._duckdb
