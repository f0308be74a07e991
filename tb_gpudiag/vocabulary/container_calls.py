"""Calls that put something into one of Python's containers, or take something out."""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of

_CONTAINER = r"(list|dict|set|collections\.(deque|OrderedDict|defaultdict)) object at .*"

# A module's hooks stay with it. Those of a tensor go with its graph.
_REGISTERS = r"(.*/)?torch/nn/modules/module\.py\(\d+\): register_(full_)?(forward|backward)_(pre_)?hook"
_UNREGISTERS = r"(.*/)?torch/utils/hooks\.py\(\d+\): remove"

ADDS = any_of(
    rf"<built-in method (append|appendleft|extend|insert|add|update|setdefault|put) of {_CONTAINER}",
    r"<built-in function (heappush|heappushpop|heapreplace)>",
    _REGISTERS,
    flags=re.S,
)
REMOVES = any_of(
    rf"<built-in method (pop|popleft|popitem|remove|clear|discard) of {_CONTAINER}",
    r"<built-in function (heappop|heappushpop|heapreplace)>",
    _UNREGISTERS,
    flags=re.S,
)
HOOK_CALLS = any_of(_REGISTERS, _UNREGISTERS, flags=re.S)

HEAP, HOOKS = "heap", "hooks"
"""Kinds of containers that are no type of Python's own."""

_CALL = re.compile(r"<built-in method (\w+) of (?:collections\.)?(\w+) object at ")
_HEAP_CALL = re.compile(r"<built-in function (\w+)>")
_FUNCTION = re.compile(r".*\(\d+\): (\w+)")


def call_of(name: str) -> tuple[str, str]:
    """Return the container's type and the method, such as ("list", "append"), of a name that is one of the
    above. Addresses in names are not reliable: the recorder may keep the first one it saw."""
    if (found := _CALL.match(name)) is not None:
        return found[2], found[1]
    if (found := _HEAP_CALL.match(name)) is not None:
        return HEAP, found[1]
    return (HOOKS, found[1]) if (found := _FUNCTION.fullmatch(name)) is not None else ("", "")
