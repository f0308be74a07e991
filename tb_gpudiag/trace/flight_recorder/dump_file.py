"""Tell the dumps of the flight recorder from other files, by their names and first bytes."""

from __future__ import annotations

import re
from typing import Final

HEAD_BYTES: Final = 4 << 10

# torch appends the rank to the prefix that the user chooses, and nothing after it. TensorBoard numbers its
# event files, too.
_NAME: Final = re.compile(r"(?!.*\.tfevents\.).*?(?P<rank>\d{1,9})(\.(json|pickle|pkl))?", re.DOTALL)
_START: Final = re.compile(rb"\x80[\x02-\x05]|\s*\{", re.DOTALL)
# Of all versions one is there: torch writes them first, or JSON sorts them before long ones.
_FIELDS: Final = re.compile(rb"comm_lib_version|nccl_version|pg_config|collective_seq_id")


def rank_in(name: str) -> int | None:
    """Return the rank whose dump a file of this name may be."""
    found = _NAME.fullmatch(name)
    return int(found["rank"]) if found else None


def is_dump(head: bytes) -> bool:
    """Return whether a file that starts like this is a dump."""
    return _START.match(head) is not None and _FIELDS.search(head) is not None
