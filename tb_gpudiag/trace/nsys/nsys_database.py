"""Read tables of an SQLite file into arrays. Nsight Systems exported the file, or so it says."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.errors import NotATrace, TooLarge, TraceError, Unreadable
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.trace_parts import ID_BITS, LONGEST_NAME, texts_of

MISSING: Final = -(2**63)
"""Value of a number that the table does not have. Times may be negative, so -1 is one."""

EXPORT_AGAIN: Final = "export it again: nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"

# Rows that are fetched at a time. With 4,096 as with 262,144, reading takes a little longer.
_ROWS: Final = 1 << 16
# SQLite runs this many of its instructions between two looks at the clock: about a millisecond.
_INSTRUCTIONS: Final = 100_000
# Measured: 20 to 40 MB/s. Damaged pages may send SQLite in circles.
_LEAST_S: Final = 60.0
_LEAST_BYTES_PER_S: Final = 2 << 20
# The longest texts are what the program printed, which is not read.
_LONGEST_TEXT: Final = 64 << 20
_IDS_AT_ONCE: Final = 500
# What SQLite says of a column that is neither hidden nor computed.
_ORDINARY: Final = 0
# The functions in our own queries.
_FUNCTIONS: Final = frozenset({"coalesce", "substr", "like", "instr"})
# A process has a few kilobytes of environment.
_LONGEST_SETTING: Final = 64 << 10
_MOST_SETTINGS: Final = 10_000
_MOST_TABLES: Final = 1_000


class Rows(NamedTuple):
    """Rows of a table: columns of whole numbers (MISSING where a row has none), and of text."""

    numbers: dict[str, Int64]
    texts: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(next(iter((self.numbers or self.texts).values())))


class Database:
    """A file that is open for reading. A context manager. All methods raise only TraceError.

    Nothing that the file defines is run: its views, triggers and virtual tables are not used, and computed
    columns are refused. `tables` has the columns of each table.
    """

    def __init__(self, path: str, limits: Limits, name: str = "") -> None:
        """name: what errors call the file, if it is a copy."""
        self.tables: dict[str, frozenset[str]] = {}
        self.rows_read = 0
        self._name = name or path
        self._limits = limits
        try:
            # Rows are in there that are not in the file.
            if any(os.path.exists(path + beside) for beside in ("-journal", "-wal")):
                raise Unreadable(
                    "it is still being written: its journal is next to it",
                    where=self._name,
                    remedy="wait until nsys export has ended; if it was stopped, " + EXPORT_AGAIN,
                )
            self._deadline = time.monotonic() + _LEAST_S + os.path.getsize(path) / _LEAST_BYTES_PER_S
            self._connection = sqlite3.connect(
                f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True
            )
        except Exception as error:
            raise self._failure(error) from error

    def __enter__(self) -> Database:
        try:
            self._restrict()
            names = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %' LIMIT ?",
                (_MOST_TABLES,),
            )
            for (name,) in names.fetchall():
                columns = self._connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
                # SQLite says what a column is, however its definition is written.
                if any(hidden != _ORDINARY for *_, hidden in columns):
                    raise NotATrace(
                        f"its table {name[:80]} computes columns, which no export of Nsight Systems does",
                        where=self._name,
                        remedy="check where the file comes from; " + EXPORT_AGAIN,
                    )
                self.tables[name] = frozenset(column for _, column, *_ in columns)
            self._connection.set_authorizer(_may)
        except Exception as error:
            self._connection.close()
            raise self._failure(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _restrict(self) -> None:
        connection = self._connection
        for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "temp_store = 2"):
            connection.execute(f"PRAGMA {pragma}")
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.set_progress_handler(self._is_late, _INSTRUCTIONS)

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and self.tables[table].issuperset(columns)

    def chunks(
        self, table: str, numbers: Sequence[str], texts: Sequence[str] = (), where: str = ""
    ) -> Iterator[Rows]:
        """Yield the rows of a table, some at a time, in the order of the file; nothing without the table.

        Columns that the table does not have are MISSING, or null. where: a condition, of ours.
        """
        has = self.tables.get(table, frozenset())
        if not has:
            return
        condition = f" WHERE {where}" if where else ""
        source = f" FROM {_quoted(table)} NOT INDEXED{condition}"
        if not numbers:
            numbers = ("rowid",)
        values = [
            f"coalesce(CAST({_quoted(n)} AS INTEGER), {MISSING})" if n in has else str(MISSING)
            for n in numbers
        ]
        shown = [
            f"substr(CAST({_quoted(t)} AS TEXT), 1, {LONGEST_NAME})" if t in has else "NULL" for t in texts
        ]
        with self._guarded():
            cursor = self._connection.execute(f"SELECT {', '.join(values)}{source}")
            # Numbers and texts of the same rows: apart, both become arrays without a loop.
            beside = [self._connection.execute(f"SELECT {text}{source}") for text in shown]
            while rows := cursor.fetchmany(_ROWS):
                self._count(len(rows))
                flat = np.fromiter(itertools.chain.from_iterable(rows), np.int64, len(rows) * len(numbers))
                table_of = flat.reshape(-1, len(numbers)).T.copy()
                found = [other.fetchmany(_ROWS) for other in beside]
                yield Rows(
                    dict(zip(numbers, table_of, strict=True)),
                    {
                        text: pa.array(itertools.chain.from_iterable(column), pa.string(), size=len(column))
                        for text, column in zip(texts, found, strict=True)
                    },
                )

    def _count(self, rows: int) -> None:
        self.rows_read += rows
        if self.rows_read > self._limits.max_events:
            raise TooLarge(
                f"it has more than {self._limits.max_events:,} events",
                where=self._name,
                remedy="record for a shorter time, or raise Limits.max_events",
            )

    def whole(self, table: str, numbers: Sequence[str], texts: Sequence[str] = (), where: str = "") -> Rows:
        """Return all rows of a small table."""
        chunks = list(self.chunks(table, numbers, texts, where))
        return Rows(
            {n: np.concatenate([c.numbers[n] for c in chunks] or [np.zeros(0, np.int64)]) for n in numbers},
            {t: pa.concat_arrays([c.texts[t] for c in chunks] or [pa.array([], pa.string())]) for t in texts},
        )

    def settings(self, table: str) -> Iterator[bytes]:
        """Yield the values of a table that have a `=`, shortened. They may contain zero bytes."""
        if not self.has(table, "value"):
            return
        value = "CAST(value AS BLOB)"
        with self._guarded():
            query = (
                f"SELECT substr({value}, 1, {_LONGEST_SETTING}) FROM {table} WHERE instr({value}, x'3d') > 0"
            )
            cursor = self._connection.execute(f"{query} LIMIT {_MOST_SETTINGS}")
            while rows := cursor.fetchmany(_IDS_AT_ONCE):
                for (setting,) in rows:
                    yield setting

    def strings(self, ids: Int64) -> dict[int, str]:
        """Return the texts with these ids in the table of strings. Unknown ids are left out."""
        if not self.has("StringIds", "id", "value"):
            return {}
        found: dict[int, str] = {}
        wanted = np.unique(ids[ids != MISSING]).tolist()
        with self._guarded():
            for at in range(0, len(wanted), _IDS_AT_ONCE):
                some = ", ".join(map(str, wanted[at : at + _IDS_AT_ONCE]))
                found.update(
                    (key, text or "")
                    for key, text in self._connection.execute(
                        f"SELECT id, substr(CAST(value AS TEXT), 1, {LONGEST_NAME}) FROM StringIds "
                        f"WHERE id IN ({some})"
                    )
                )
        return found

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return the error to raise instead."""
        if isinstance(error, (TraceError, MemoryError)):
            return error
        if not isinstance(error, (sqlite3.Error, sqlite3.Warning, OSError, UnicodeDecodeError)):
            return error  # a bug
        text = " ".join(str(error).split())
        if self._is_late():
            return TooLarge("reading it takes too long for its size", where=self._name, remedy=EXPORT_AGAIN)
        if "not a database" in text or "encrypted" in text:
            return NotATrace("it is not an SQLite database", where=self._name, remedy=EXPORT_AGAIN)
        return Unreadable(
            f"the database is damaged or cut off ({text})", where=self._name, remedy=EXPORT_AGAIN
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _may(action: int, _first: str | None, second: str | None, _base: str | None, inner: str | None) -> int:
    """Allow to read tables. `inner` names the view or trigger that wants it."""
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS
    )
    return sqlite3.SQLITE_OK if allowed and inner is None else sqlite3.SQLITE_DENY


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
