"""Calls that put something into one of Python's containers, or take something out."""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of

_CONTAINER = r"(list|dict|set|collections\.(deque|OrderedDict|defaultdict)) object at .*"

ADDS = any_of(
    rf"<built-in method (append|appendleft|extend|insert|add|update|setdefault|put) of {_CONTAINER}",
    flags=re.S,
)
REMOVES = any_of(rf"<built-in method (pop|popleft|popitem|remove|clear|discard) of {_CONTAINER}", flags=re.S)

_CALL = re.compile(r"<built-in method (\w+) of (?:collections\.)?(\w+) object at ")


def call_of(name: str) -> tuple[str, str]:
    """Return the container's type and the method, such as ("list", "append"), of a name that is one of the
    above. Addresses in names are not reliable: the recorder may keep the first one it saw."""
    found = _CALL.match(name)
    return (found[2], found[1]) if found is not None else ("", "")
