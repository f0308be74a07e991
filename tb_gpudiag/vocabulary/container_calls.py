"""Calls that put something into one of Python's containers, or take something out."""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of, lazy_re

# The recorder names a method by the first object it saw it called on. When a job makes its model, torch looks
# at stack traces, so that all lists' methods have the name of that subclass.
_LIST_SUBCLASS = "StackSummary"
_CONTAINER = rf"(list|{_LIST_SUBCLASS}|dict|set|collections\.(deque|OrderedDict|defaultdict)) object at .*"

# A module's hooks stay with it. Those of a tensor go with its graph.
_HOOKS = r"(.*/)?torch/nn/modules/module\.py\(\d+\): register_(full_)?(forward|backward)_(pre_)?hook"
_NO_HOOKS = r"(.*/)?torch/utils/hooks\.py\(\d+\): remove"
_MODULES = r"(.*/)?torch/nn/modules/container\.py\(\d+\): (append|extend|insert)"
_NO_MODULES = r"(.*/)?torch/nn/modules/container\.py\(\d+\): (pop|__delitem__)"

ADDS = any_of(
    rf"<built-in method (append|appendleft|extend|insert|add|update|setdefault|put) of {_CONTAINER}",
    r"<built-in function (heappush|heappushpop|heapreplace)>",
    _HOOKS,
    _MODULES,
    flags=re.S,
)
REMOVES = any_of(
    rf"<built-in method (pop|popleft|popitem|remove|clear|discard) of {_CONTAINER}",
    r"<built-in function (heappop|heappushpop|heapreplace)>",
    _NO_HOOKS,
    _NO_MODULES,
    flags=re.S,
)
TORCH_CALLS = any_of(_HOOKS, _NO_HOOKS, _MODULES, _NO_MODULES, flags=re.S)
"""Those of the above that are functions of torch."""

TENSOR_HASH = any_of(r"(.*/)?torch/_tensor\.py\(\d+\): __hash__")
"""Inside `set.add`, it says that a tensor is added, and no number."""

HEAP, HOOKS, MODULES = "heap", "hooks", "modules"
"""Kinds of containers that are no type of Python's own."""

_CALL = lazy_re(r"<built-in method (\w+) of (?:collections\.)?(\w+) object at ")
_HEAP_CALL = lazy_re(r"<built-in function (\w+)>")
_FUNCTION = lazy_re(r".*\(\d+\): (\w+)")


def call_of(name: str) -> tuple[str, str]:
    """Return the container's type and the method, such as ("list", "append"), of a name that is one of the
    above. Addresses in names are not reliable: the recorder may keep the first one it saw."""
    if (found := _CALL.match(name)) is not None:
        return "list" if found[2] == _LIST_SUBCLASS else found[2], found[1]
    if (found := _HEAP_CALL.match(name)) is not None:
        return HEAP, found[1]
    if (found := _FUNCTION.fullmatch(name)) is None:
        return "", ""
    return HOOKS if "hook" in name else MODULES, found[1]
