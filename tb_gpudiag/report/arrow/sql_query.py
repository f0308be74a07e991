"""SQL over the tables of traces, by DuckDB: read-only, and bounded in memory, time and rows.

The query may come from a page that anyone opened, and names in a trace from anyone. DuckDB therefore gets
no access to files, the network, extensions or variables of this program, and its settings are locked. It
takes one statement that reads. Each query has a database of its own, in memory.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.errors import LimitReached, UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re

TEXT: Final = pa.dictionary(pa.int32(), pa.string())

_TYPES: Final = {
    "text": TEXT,
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
    "float": pa.float32(),
}
_COLUMN: Final = lazy_re(r"^\| `(\w+)` \| (\w+) \|", re.MULTILINE)


def _schemas() -> dict[str, pa.Schema]:
    """Read the schema of each table. The columns before the first table begin every table."""
    text = Path(__file__).with_name("tables.md").read_text(encoding="utf-8")
    first, *sections = text.split("\n### ")
    every = _COLUMN.findall(first)
    return {
        section.partition("`\n")[0].strip("`"): pa.schema(
            [(name, _TYPES[kind]) for name, kind in [*every, *_COLUMN.findall(section)]]
        )
        for section in sections
    }


TABLES: Final = _schemas()
"""Name of a table -> its schema, in the order of tables.md."""


# A sum over the events of a 500 MB trace takes a tenth of it.
MEMORY_MB: Final = 1024
# Such a sum takes less than a second. Who waits longer has joined without a condition.
MOST_S: Final = 30.0
# TensorBoard's machine has other work.
THREADS: Final = 4
LONGEST_QUERY: Final = 20_000

_CONFIG: Final = {
    "memory_limit": f"{MEMORY_MB}MB",
    "threads": str(THREADS),
    "max_temp_directory_size": "0KB",  # it writes no files when memory runs out
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "lock_configuration": "true",
}

# These functions take the name of a table as text, which may be put together.
_ANY_TABLE: Final = lazy_re(r"\bquery(_table)?\b", re.IGNORECASE)
_WORD: Final = lazy_re(r"\w+")


@dataclass(frozen=True)
class SqlQuery:
    """One SELECT, checked, and the tables that it may read."""

    text: str
    tables: list[str]


@dataclass(frozen=True, eq=False)
class SqlAnswer:
    """What a query returned. cut: there were more rows."""

    table: pa.Table
    cut: bool

    @property
    def note(self) -> str:
        """Says that there were more rows; "" if there were not."""
        if not self.cut:
            return ""
        return f"Only the first {self.table.num_rows:,} rows are shown: add a WHERE, a GROUP BY or a LIMIT."


def run_sql(
    query: SqlQuery, made: Callable[[str], pa.Table], most_rows: int, *, most_s: float = MOST_S
) -> SqlAnswer:
    """Run a query, and return at most `most_rows` rows. made: returns a table by its name; those that the
    query does not read may have no rows.

    Raises:
        UsageError: DuckDB refuses the query.
        LimitReached: the query takes too much memory or time.
    """
    duckdb = _duckdb()
    connection = duckdb.connect(":memory:", config=_CONFIG)
    late = threading.Event()

    def stop() -> None:
        late.set()
        connection.interrupt()

    timer = threading.Timer(most_s, stop)
    timer.daemon = True
    try:
        for name in TABLES:
            connection.register(name, made(name))
        timer.start()
        found = connection.sql(query.text).limit(most_rows + 1).to_arrow_table()
    except duckdb.OutOfMemoryException as error:
        raise LimitReached(
            f"The query needs more than {MEMORY_MB:,} MB of memory.", remedy=_SMALLER
        ) from error
    except duckdb.InterruptException as error:
        if not late.is_set():
            raise KeyboardInterrupt from error
        raise too_long(most_s) from error
    except duckdb.Error as error:
        raise _refused(error) from error
    finally:
        timer.cancel()
        connection.close()
    return SqlAnswer(_whole(found.slice(0, most_rows)), found.num_rows > most_rows)


def _whole(found: pa.Table) -> pa.Table:
    """Sums of 64-bit numbers have 128 bits in DuckDB: return them as 64-bit numbers, if they fit."""
    for at, field in enumerate(found.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                found = found.set_column(at, field.name, found.column(at).cast(pa.int64()))
    return found


def checked(query: str) -> SqlQuery:
    """Check a query. Raises UsageError: it is not one query that reads, or DuckDB is not installed."""
    duckdb = _duckdb()
    if len(query) > LONGEST_QUERY:
        raise UsageError(f"The query has more than {LONGEST_QUERY:,} characters.")
    # Raise UsageError for what is not one statement that reads.
    try:
        found = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise _refused(error) from error
    kinds = duckdb.StatementType
    if len(found) != 1 or found[0].type not in (kinds.SELECT, kinds.EXPLAIN):
        raise UsageError(
            "This is not one query that reads.", remedy="Write one SELECT; a table is a name such as `idle`."
        )
    return SqlQuery(query, _named(query))


def too_long(most_s: float) -> LimitReached:
    return LimitReached(f"The query was stopped after {most_s:g} s.", remedy=_SMALLER)


_SMALLER: Final = "Select fewer rows (WHERE), or join on a condition."


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            "SQL needs DuckDB, which is not installed.", remedy="pip install 'tb-gpudiag[sql]'"
        ) from error
    return duckdb


def _named(query: str) -> list[str]:
    if _ANY_TABLE.search(query):
        return list(TABLES)
    words = {word.lower() for word in _WORD.findall(query)}
    return [name for name in TABLES if name in words]


def _refused(error: Exception) -> UsageError:
    """DuckDB's message: it quotes the query, and names no file."""
    lines = [line.strip() for line in str(error).splitlines()]
    return UsageError(
        f"DuckDB refuses the query: {' '.join(filter(None, lines))[:1000]}",
        remedy=f"The tables are {', '.join(TABLES)}; `DESCRIBE idle` shows the columns of one.",
    )


def values(column: pa.ChunkedArray) -> list[object]:
    """The values of a column. DuckDB has dates and times of 600,000 years: those that Python does not have
    are texts."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        return [_value(one) for one in column]


def _value(one: pa.Scalar) -> object:
    try:
        return one.as_py()
    except (OverflowError, ValueError):
        nested = pa.types.is_nested(one.type)
        return "<dates out of range>" if nested else pc.cast(one, pa.string()).as_py()
