"""What holds the tensors that became more: functions that reach them, containers with a limit, autograd's
graphs.

A profiler that records stacks records every call from Python's bytecode: there is none here for each tensor
or node.

A trace shows calls, such as a list's append. Assignments, closures, suspended coroutines and the results that
a helper returns are none, so the function that allocates is not always the one that keeps.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import logging
import math
import operator
import os
import re
import sys
import weakref
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    ModuleType,
)
from typing import Any, Final

from tb_gpudiag.vocabulary.frames import COMPREHENSIONS
from tb_gpudiag.vocabulary.written import MOST_NODES


def needing_gradients(tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return those that have a graph, and the leaves that need gradients. Of a view that autograd refuses to
    look at, because what it is of was changed in place since, nothing is known."""
    attached, leaves = list[Any](), list[Any]()
    for tensor in itertools.compress(tensors, map(operator.attrgetter("requires_grad"), tensors)):
        try:
            kind = leaves if tensor.is_leaf else attached
            kind += [tensor]
        except RuntimeError:
            pass
    return attached, leaves


def node_kinds(kinds: Iterable[type]) -> set[type]:
    """Return the types of nodes among these, and torch's own ones."""
    torch = sys.modules["torch"]
    own = {kind for kind in vars(torch._C._functions).values() if isinstance(kind, type)}
    return own | {kind for kind in kinds if torch._C._FunctionBase in kind.__mro__}


def graph_nodes(attached: Iterable[Any], others: Iterable[Any]) -> int:
    """Count the nodes of the graphs of these tensors and of other nodes, up to MOST_NODES."""
    new, seen = ({tensor.grad_fn for tensor in attached} | {*others}) - {None}, set[Any]()
    while new and len(seen) < MOST_NODES:
        seen |= new
        new = {node for known in new for node, _ in known.next_functions} - seen - {None}
    return min(len(seen), MOST_NODES)


MOST_SIZES: Final = 4
"""Sizes that are looked at, those with most bytes."""

SAMPLES: Final = 3
"""Tensors of each size that are followed: the first, one in the middle, and the last."""

LOOKED_AT: Final = 8
"""It is looked whether Python has so many of the last tensors of each size, and so many of those before."""

MOST_LEVELS: Final = 8
"""Steps from a tensor to what holds what holds it, ...: each looks through all objects once."""

MOST_OBJECTS: Final = 64
"""At more objects in one step, such as all functions of a program, the way is lost."""

MOST_FUNCTIONS: Final = 32

LEAST_ENTRIES: Final = 0.75
"""A container with a limit is why memory grows if it holds this share of the tensors that came."""

_LIMIT = re.compile(
    r"_*(capacity|window|(max|buffer|cache|queue|memory|window)_?(len|length|size|entries|items))"
)
"""Attributes of an object that say how much its container takes."""

logger = logging.getLogger("tb_gpudiag.training")

_CONTAINERS = (list, dict, set, deque, functools._lru_cache_wrapper)
_SUSPENDED = {GeneratorType: "gi_code", CoroutineType: "cr_code", AsyncGeneratorType: "ag_code"}
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MAKES = ("__init__", "__new__", "__post_init__", "__setstate__")
_STANDARD, _OWN = os.path.dirname(os.__file__), os.path.dirname(__file__)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\](?!torch[/\\])")


def limited_containers() -> dict[int, Any]:
    """Return those that there are: id -> weak reference."""
    kinds, objects = {deque, functools._lru_cache_wrapper}, gc.get_objects()
    found = list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))
    return {id(one): weakref.ref(one) for one in found if _limit_of(one) is not None}


def holders(came: Mapping[int, Sequence[Any]], older: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Describe what holds tensors. came: size in bytes -> weak references to the tensors that came. older:
    containers with a limit that were there before.

    Returns per size: `functions`, as a trace spells them: lists, what is nearest to the tensors first.
    `graph`: the share of the tensors that no object of Python's refers to, but a graph, or else C++. If older
    containers with a limit hold them, or one that is not full, also their `type`, `entries`, `limit`.
    """
    chosen = {size: _chosen(references) for size, references in list(came.items())[:MOST_SIZES]}
    try:
        referred = _referred([reference for some in chosen.values() for reference in some])
        searches = [_Search(size, len(came[size]), chosen[size], referred, older) for size in chosen]
        _climb(searches)
        return [search.found() for search in searches]
    except Exception as error:  # objects of the job may do anything when they are looked at
        logger.warning("gpudiag: the recording does not say what holds tensors: %s", error)
        return []


class _Search:
    """What was found of the tensors of one size."""

    def __init__(
        self, size: int, count: int, chosen: Sequence[Any], referred: Container[int], older: Mapping[int, Any]
    ) -> None:
        own = [reference for reference in chosen if id(reference()) in referred]
        self._graph = 1 - len(own) / len(chosen)
        self.samples = _spread(own or chosen, SAMPLES)
        self._open = set(range(len(self.samples)))
        self._found, self._found_before = set[int](), set[int]()
        self._size, self._count, self._older = size, count, older
        self._codes = [dict[CodeType, None]()]  # of each level
        self._in_older = dict[int, set[int]]()  # ids of containers, and the samples in them
        self._shared: Any = None  # the container that all samples are in
        self._limit = dict[str, Any]()
        self._contained = False

    def see(self, holder: Any, of: set[int], below: Container[int]) -> bool:
        """Note an object that leads to these samples, over objects of these ids. Return whether to go on to
        what holds it.

        A closure's functions are one level above the generator that shares its variables.
        """
        closing = of <= self._found_before
        if not of & self._open or (closing and type(holder) is not FunctionType):
            return False
        self._contained = True
        if id(holder) in self._older and self._older[id(holder)]() is holder:
            self._in_older[id(holder)] = of
        if len(of) == len(self.samples):
            self._measure(holder)
        codes = list(filter(_is_users, _reaching(holder, below)))
        self._codes[-2 if closing else -1].update(dict.fromkeys(codes))
        if not _is(holder, (type, FunctionType)) and (not codes or _attributes(holder) is not None):
            return True  # what holds an object may be what keeps it; all objects of a class hold the class
        self._found |= of
        return False

    def end_level(self) -> None:
        self._codes.append({})
        self._open -= self._found_before
        self._found_before = set(self._found)

    def _measure(self, holder: Any) -> None:
        if self._shared is None and _is(holder, _CONTAINERS):
            self._shared = holder
            self._note_limit(holder, _entries(holder), _limit_of(holder))
            return
        attributes = _attributes(holder) or {}
        if self._shared is not None and any(value is self._shared for value in attributes.values()):
            for name, value in attributes.items():
                if _LIMIT.fullmatch(name):
                    self._note_limit(holder, _entries(self._shared), value)

    def _note_limit(self, holder: Any, entries: int, limit: Any) -> None:
        if type(limit) is not int or limit * self._size > _memory_bytes():
            return  # it never gets there
        if LEAST_ENTRIES * self._count <= entries < limit:
            self._limit = {"type": type(holder).__name__, "entries": entries, "limit": limit}

    def found(self) -> dict[str, Any]:
        levels = [list(codes)[:MOST_FUNCTIONS] for codes in self._codes if codes]
        if not levels and self._contained:
            levels = [list(_running())]  # Python's collector does not know their variables
        names = [list(map(_name_of, codes)) for codes in levels]
        limit = self._limit or self._older_limit()
        return {"bytes": self._size, "functions": names, "graph": self._graph, **limit}

    def _older_limit(self) -> dict[str, Any]:
        found = [self._older[number]() for number in self._in_older]
        if len(set[int]().union(*self._in_older.values())) < len(self.samples):
            return {}
        entries, limit = sum(map(_entries, found)), sum(map(_limit_of, found))
        return {"type": type(found[0]).__name__, "entries": entries, "limit": limit}


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    """Return so many of these: the first, the last, and some between."""
    chosen = {i * (len(values) - 1) // (count - 1) for i in range(count)}
    return [value for i, value in enumerate(values) if i in chosen]


def _chosen(references: Sequence[Any]) -> list[Any]:
    """Return weak references that are worth a look: a graph's end is among the last ones."""
    return [*_spread(references[:-LOOKED_AT], LOOKED_AT), *references[-LOOKED_AT:]]


def _referred(references: Sequence[Any]) -> set[int]:
    """Return the ids of those of these tensors that an object of Python's refers to. What a graph has saved
    is an object, too, but has no referrer."""
    tensors = [tensor for reference in references if (tensor := reference()) is not None]
    holders = (one for one in gc.get_referrers(*tensors) if one is not tensors and not _is_our_frame(one))
    return {id(one) for holder in holders for one in gc.get_referents(holder)}


def _climb(searches: Sequence[_Search]) -> None:
    """Go from the tensors to what holds them, level by level."""
    level, leads = list[Any](), dict[int, set[tuple[int, int]]]()
    for number, search in enumerate(searches):
        for sample, reference in enumerate(search.samples):
            if (tensor := reference()) is not None:
                level.append(tensor)
                leads.setdefault(id(tensor), set()).add((number, sample))
    known = list(level)
    for _ in range(MOST_LEVELS):
        if not level or len(level) > MOST_OBJECTS:
            return
        level = _next_level(searches, level, leads, known)
        known += level


def _next_level(
    searches: Sequence[_Search], level: list[Any], leads: dict[int, set[tuple[int, int]]], known: list[Any]
) -> list[Any]:
    """Return what holds these objects and is to be gone on from. leads: id of an object -> the samples that
    it leads to, with the number of their search; completed. known: keeps those objects."""
    ours, here = {id(level), id(known), *map(id, known)}, set(map(id, level))
    ours.update(map(id, [*searches, *map(vars, searches)]))
    following = list[Any]()
    for holder in gc.get_referrers(*level):
        if id(holder) in ours or _is(holder, ModuleType) or _is_our_frame(holder):
            continue
        below = here.intersection(map(id, gc.get_referents(holder)))
        of = set[tuple[int, int]]().union(*map(leads.__getitem__, below))
        own = [{sample for one, sample in of if one == number} for number in range(len(searches))]
        goes_on = [search.see(holder, samples, leads) for search, samples in zip(searches, own, strict=True)]
        if any(goes_on):
            leads[id(holder)] = of
            following.append(holder)
    for search in searches:
        search.end_level()
    return following


def _reaching(holder: Any, below: Container[int]) -> Iterable[CodeType]:
    """Return the functions that reach objects of these ids through this one."""
    kind = type(holder)
    if kind is FrameType:
        return [holder.f_code]
    if kind is FunctionType or kind is functools._lru_cache_wrapper:
        return _code_of(holder)
    if kind in _SUSPENDED:
        return [getattr(holder, _SUSPENDED[kind])]
    if kind is dict:
        is_module = "__builtins__" in holder and "__name__" in holder
        return _naming(holder.values(), _names(holder, below)) if is_module else []
    names = _names(_attributes(holder) or {}, below)
    classes = [holder] if _is(holder, type) else _bases(kind)
    return [code for one in classes for code in _naming(_members(one), names)] if names else []


def _limit_of(container: Any) -> Any:
    if _is(container, functools._lru_cache_wrapper):
        return container.cache_parameters()["maxsize"]
    return deque.maxlen.__get__(container) if _is(container, deque) else None


def _entries(container: Any) -> int:
    if _is(container, functools._lru_cache_wrapper):
        return container.cache_info().currsize
    kinds: Iterable[Any] = _CONTAINERS
    return next(kind.__len__(container) for kind in kinds if _is(container, kind))


def _is(value: Any, kinds: Any) -> bool:
    """As isinstance, which may call the program's code: a property `__class__`."""
    return issubclass(type(value), kinds)


def _attributes(holder: Any) -> Mapping[str, Any] | None:
    """Return what an object has in memory, without code of its class. None: it has no attributes."""
    for kind in _bases(type(holder)):
        slot = type.__getattribute__(kind, "__dict__").get("__dict__")
        if type(slot) is GetSetDescriptorType:
            found = slot.__get__(holder)
            return dict.copy(found) if _is(found, dict) else found
    return None


def _bases(kind: type) -> tuple[type, ...]:
    return type.__getattribute__(kind, "__mro__")


def _members(of: type) -> Iterable[Any]:
    return (_attributes(of) or {}).values()


def _names(space: Mapping[Any, Any], below: Container[int]) -> frozenset[str]:
    return frozenset(name for name, value in space.items() if type(name) is str and id(value) in below)


def _naming(values: Iterable[Any], names: frozenset[str]) -> Iterator[CodeType]:
    """Yield the functions among these values, and those of the classes among them, that use such a name."""
    for value in values:
        inner = _members(value) if _is(value, type) else [value]
        for code in (code for one in inner for code in _code_of(one)):
            yield from (one for one, used in _with_inner(code) if not names.isdisjoint(used))


def _with_inner(code: CodeType) -> Iterator[tuple[CodeType, Iterable[str]]]:
    """Yield a function and those that it defines, each with the names that it uses. A comprehension is a part
    of it."""
    yield code, code.co_names
    for one in code.co_consts:
        if type(one) is CodeType:
            yield code if one.co_name in COMPREHENSIONS else one, one.co_names


def _code_of(function: Any) -> list[CodeType]:
    """Return the code of a function, a method, a property or a wrapper of one; else nothing."""
    if _is(function, property):
        function = function.fget
    if _is(function, (staticmethod, classmethod)):
        function = function.__func__
    while _is(function, (FunctionType, functools._lru_cache_wrapper)) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return [function.__code__] if type(function) is FunctionType else []


def _name_of(code: CodeType) -> str:
    """`train.py(7): collect`. Of a function that is resumed, a trace has any line: 0."""
    line = 0 if code.co_flags & _RESUMED else code.co_firstlineno
    return f"{code.co_filename}({line}): {code.co_name}"


def _running() -> Iterator[CodeType]:
    """Yield the user's functions that run, the innermost one first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if _is_users(frame.f_code):
            yield frame.f_code
        frame = frame.f_back


def _memory_bytes() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return math.inf


def _is_our_frame(holder: Any) -> bool:
    return type(holder) is FrameType and holder.f_code.co_filename.startswith(_OWN)


def _is_users(code: CodeType) -> bool:
    file = code.co_filename
    if code.co_name in _MAKES:
        return False  # the object that holds them is kept in turn
    if file.startswith(("<", _OWN)):
        return False
    return _INSTALLED.search(file) is not None or not ("-packages" in file or file.startswith(_STANDARD))
