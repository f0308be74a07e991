"""Parse JSON text into columns, with DuckDB. Imported only for text that the compiled scanner does not read:
DuckDB costs a tenth of a second."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Bool
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.columns import Part, part_of
from tb_gpudiag.trace.kineto.fields import ParsedFields
from tb_gpudiag.trace.kineto.structure import MOST_ELEMENTS, most_elements

# Before version 2, DuckDB converted a number to a decimal by way of a double. It parses a quoted number digit
# by digit in all versions.
_MAY_ROUND: Final = int(duckdb.__version__.split(".")[0]) < 2
# Below this, rounding the double to three places gives the number that was written.
_EXACT_IN_DOUBLE_US: Final = 2**41


def _query(schema: dict[str, Any]) -> str:
    # One list of all events. Unnesting it in SQL takes 1.5 times as long.
    return f"SELECT from_json(text, '{json.dumps([schema])}') AS events FROM chunk"


_EVENTS: Final = _query({**dict(kineto.FIELDS.values()), "args": dict(kineto.ARGUMENTS.values())})
_SELDOM: Final = {group: _query({"args": dict(columns.values())}) for group, columns in kineto.SELDOM.items()}
_COUNTERS: Final = _query(dict(kineto.COUNTERS.values()))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return the in-memory database of this process: opening one takes longer than reading a small trace."""
    # SQL must not fetch or read anything: the text comes from us, and the JSON extension is built in.
    return duckdb.connect(
        config={
            "threads": 1,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "enable_external_access": False,
        }
    )


# A child has no threads of its parent's database.
os.register_at_fork(after_in_child=_database.cache_clear)


class DuckDBParser:
    """Parser for one thread."""

    def __init__(self) -> None:
        self._connection = _database().cursor()

    def close(self) -> None:
        """Free the memory."""
        self._connection.close()

    def parse(self, text: bytes) -> Part | None:
        """As Parser.parse."""
        if most_elements(text) > MOST_ELEMENTS and not self._fits(text):
            return None
        events = self._events(_EVENTS, text)
        if events is not None and _MAY_ROUND and _beyond_double(events.field(kineto.FIELDS["start_us"][0])):
            events = self._events(_EVENTS, kineto.quoted_timestamps(text))
        if events is None:
            return None
        return part_of(ParsedFields(_columns(events), lambda group: self.seldom(text, group)))

    def valid(self, texts: list[bytes]) -> Bool:
        """As Parser.valid."""
        table = self._run("SELECT json_valid(text) AS valid FROM chunk", texts)
        if table is None:  # impossible: json_valid returns false instead of failing
            return np.zeros(len(texts), np.bool_)
        return np.asarray(pc.fill_null(table.column("valid"), False).to_numpy(), np.bool_)

    def _fits(self, text: bytes) -> bool:
        """Return whether an array has MOST_ELEMENTS elements at most. This costs a sixth of parsing it."""
        table = self._run("SELECT json_array_length(text) AS elements FROM chunk", [text])
        return table is not None and bool(table.column("elements")[0].as_py() <= MOST_ELEMENTS)

    def seldom(self, text: bytes, group: str) -> dict[str, pa.Array]:
        """Return the columns of a group of kineto.SELDOM, or "counters", of a text that is JSON; {} if it has
        none."""
        if group == "counters":
            events = self._events(_COUNTERS, text)
            fields = {} if events is None else _fields(events)
            return {name: fields[key] for name, (key, _) in kineto.COUNTERS.items() if fields}
        keys = (f'"{key}"'.encode() for key, _ in kineto.SELDOM[group].values())
        events = self._events(_SELDOM[group], text) if any(key in text for key in keys) else None
        if events is None:
            return {}
        arguments = _fields(_fields(events)["args"])
        return {name: arguments[key] for name, (key, _) in kineto.SELDOM[group].items()}

    def _events(self, query: str, text: bytes) -> pa.StructArray | None:
        table = self._run(query, [text])
        return None if table is None else _whole(table.column("events")).flatten()

    def _run(self, query: str, texts: list[bytes]) -> pa.Table | None:
        # Pass the bytes as they are: DuckDB's parser checks UTF-8 itself.
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        joined = texts[0] if len(texts) == 1 else b"".join(texts)
        buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(joined)]
        column = pa.Array.from_buffers(pa.large_string(), len(texts), buffers)
        self._connection.register("chunk", pa.table({"text": column}))
        try:
            return self._connection.sql(query).to_arrow_table()
        except (duckdb.InvalidInputException, duckdb.DataError, UnicodeDecodeError):
            # UnicodeDecodeError: DuckDB's message quotes text that is not UTF-8.
            return None
        except duckdb.OutOfMemoryException as error:
            raise MemoryError from error
        except duckdb.FatalException:
            _database.cache_clear()  # after such an error, a database answers nothing more
            raise
        finally:
            self._connection.unregister("chunk")


def _fields(structs: pa.StructArray) -> dict[str, pa.Array]:
    """Return the fields by name; a field is null where the struct is."""
    return dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))


def _columns(events: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns that are read, by our names (see kineto.py)."""
    fields = _fields(events)
    arguments = _fields(fields["args"])
    columns = {name: fields[key] for name, (key, _) in kineto.FIELDS.items()}
    return columns | {name: arguments[key] for name, (key, _) in kineto.ARGUMENTS.items()}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole: Any = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _beyond_double(timestamps: pa.Array) -> bool:
    ends = pc.min_max(timestamps).as_py()
    return any(abs(end) > _EXACT_IN_DOUBLE_US for end in ends.values() if end is not None)
