"""The Arrow tables of a trace: their columns, which tables.md describes for the documentation, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pyarrow as pa

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
