"""What holds the tensors that became more."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from tb_gpudiag.training.tensor_holders import SAMPLES, holders, limited_containers

pytestmark = pytest.mark.slow

SIZE = 4096
COUNT = 9


class Found:
    def __init__(self, tensors: list[Any], older: dict[int, Any] | None = None) -> None:
        references = [weakref.ref(tensor) for tensor in tensors]
        tensors.clear()
        (found,) = holders({SIZE: references}, older or {})
        assert found["bytes"] == SIZE
        self.levels = [[name.rpartition(": ")[2] for name in level] for level in found["functions"]]
        self.spots = {name for level in found["functions"] for name in level}
        self.limit = found.get("limit")
        self.entries = found.get("entries")
        self.graph = found["graph"]

    @property
    def nearest(self) -> set[str]:
        return set(self.levels[0])


@pytest.fixture
def tensors(torch: Any) -> list[Any]:
    return [torch.zeros(SIZE // 4) for _ in range(COUNT)]


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """The tests freeze what they import, and Python's collector does not look there."""
    gc.unfreeze()
    yield
    gc.freeze()


kept_by_the_module: list[Any] = []


def fill_of_the_module(values: list[Any]) -> None:
    kept_by_the_module.extend(values)


class Keeper:
    shared: list[Any] = []  # noqa: RUF012

    def __init__(self, values: list[Any], capacity: int = 0) -> None:
        self.values, self.capacity = list(values), capacity

    def collect(self) -> int:
        return len(self.values)

    def other(self) -> int:
        return self.capacity

    @property
    def of_all(self) -> int:
        return len(self.shared)


def test_functions_that_share_a_closure_are_named(tensors: list[Any]) -> None:
    kept = list(tensors)

    def collect() -> int:
        return len(kept)

    def other() -> int:
        return COUNT

    found = Found(tensors)
    assert "collect" in found.nearest
    assert other.__name__ not in found.nearest
    line = inspect.getsourcelines(collect)[1]
    assert f"{__file__}({line}): collect" in found.spots


def test_of_an_object_only_the_methods_that_name_the_attribute_are_named(tensors: list[Any]) -> None:
    keeper = Keeper(tensors)
    assert Found(tensors).nearest == {keeper.collect.__name__}


def test_a_comprehension_is_a_part_of_its_function(torch: Any) -> None:
    class Sums:
        def __init__(self, values: list[Any]) -> None:
            self.values = values

        def all(self) -> list[float]:
            return [float(self.values[i].sum()) for i in range(COUNT)]

    tensors = [torch.zeros(SIZE // 4) for _ in range(COUNT)]
    sums = Sums(list(tensors))
    assert Found(tensors).nearest == {sums.all.__name__}


def test_what_only_a_graph_holds_is_told_and_what_holds_its_end_is_found(torch: Any) -> None:
    inputs = torch.rand(SIZE // 4, requires_grad=True)
    tensors = [inputs.sin()]
    while len(tensors) < COUNT:
        tensors.append(tensors[-1].sin())
    keeper = Keeper(tensors[-1:])
    found = Found(tensors)
    assert found.nearest == {keeper.collect.__name__}
    assert found.graph == pytest.approx(1 - 1 / COUNT)


def test_tensors_without_a_graph_are_held_by_none(tensors: list[Any]) -> None:
    tensors[:] = [tensor.mul(2) for tensor in tensors]
    kept = list(tensors)
    found = Found(tensors)
    assert found.graph == 0
    kept.clear()


@pytest.mark.usefixtures("unfrozen")
def test_properties_reach_what_a_class_holds(tensors: list[Any]) -> None:
    Keeper.shared[:] = tensors
    try:
        assert Found(tensors).nearest == {"of_all"}
    finally:
        Keeper.shared.clear()


@pytest.mark.usefixtures("unfrozen")
def test_functions_of_a_module_that_name_a_global_are_named(tensors: list[Any]) -> None:
    fill_of_the_module(tensors)
    try:
        assert fill_of_the_module.__name__ in Found(tensors).nearest
    finally:
        kept_by_the_module.clear()


def test_a_suspended_function_holds_its_variables(tensors: list[Any]) -> None:
    def wait(values: list[Any]) -> Iterator[None]:
        held = list(values)
        yield
        held.clear()

    waiting = wait(tensors)
    next(waiting)
    found = Found(tensors)
    assert found.nearest == {"wait"}
    assert found.spots == {f"{__file__}(0): wait"}  # a trace has the line at which it goes on
    with suppress(StopIteration):
        next(waiting)


def test_the_variables_of_a_running_function_are_not_seen_but_it_is_named(tensors: list[Any]) -> None:
    def run() -> Found:
        _held = [list(tensors)]
        return Found(tensors)

    assert run().levels[0][:2] == [
        "run",
        test_the_variables_of_a_running_function_are_not_seen_but_it_is_named.__name__,
    ]


def bounded(values: list[Any], most: int | None) -> deque[Any]:
    return deque(values, maxlen=most)


@pytest.mark.parametrize(("most", "limit"), [(None, None), (COUNT, None), (COUNT + 1, COUNT + 1)])
def test_a_container_that_is_not_full_has_a_limit(
    most: int | None, limit: int | None, tensors: list[Any]
) -> None:
    keeper = Keeper([])
    keeper.values = bounded(tensors, most)  # type: ignore[assignment]
    found = Found(tensors)
    assert (found.entries, found.limit) == ((COUNT, limit) if limit else (None, None))


@pytest.mark.parametrize(
    ("capacity", "limit"),
    [
        (0, None),
        (COUNT - 1, None),  # it says something else
        (2 * COUNT, 2 * COUNT),
        (2**60, None),  # the machine has less
    ],
)
def test_the_object_around_a_list_may_say_its_limit(
    capacity: int, limit: int | None, tensors: list[Any]
) -> None:
    _keeper = Keeper(tensors, capacity)
    assert Found(tensors).limit == limit


@pytest.mark.parametrize("make", [lambda values: deque(values, maxlen=5), lambda values: cached(values)])
@pytest.mark.parametrize("new", [True, False])
def test_many_small_containers_are_a_limit_unless_there_are_more_and_more(
    make: Callable[[list[Any]], Any], new: bool, tensors: list[Any]
) -> None:
    """A queue for each class, or a cache for each new user."""
    kept = {number: make([tensor]) for number, tensor in enumerate(tensors)}
    found = Found(tensors, {} if new else limited_containers())
    assert (found.entries, found.limit) == ((None, None) if new else (SAMPLES, SAMPLES * 5))
    assert len(kept) == COUNT


def cached(values: list[Any]) -> Any:
    @functools.lru_cache(maxsize=5)
    def get(_number: int) -> Any:
        return values[0]

    get(0)
    return get


class Lazy(list[Any]):
    """One whose every look at it is noted."""

    looks: ClassVar[list[str]] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        self.looks.append("__class__")
        return Lazy

    def __getattribute__(self, name: str) -> Any:
        Lazy.looks.append(name)
        return super().__getattribute__(name)

    def __len__(self) -> int:
        Lazy.looks.append("__len__")
        return super().__len__()


def test_no_code_of_what_holds_tensors_is_called(tensors: list[Any]) -> None:
    outer = Lazy([lazy := Lazy(tensors)])
    object.__setattr__(outer, "capacity", lazy)
    Lazy.looks.clear()
    found = Found(tensors)
    assert Lazy.looks == []
    assert (found.levels != [], len(outer)) == (True, 1)


def test_what_cannot_be_looked_at_costs_only_the_holders(
    tensors: list[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> list[Any]:
        raise OSError("no")

    monkeypatch.setattr(gc, "get_referrers", refused)
    references = {SIZE: [weakref.ref(tensor) for tensor in tensors]}
    tensors.clear()
    assert holders(references, {}) == []
    assert "what holds tensors" in caplog.text


def test_tensors_that_nothing_of_python_holds_have_no_functions(torch: Any) -> None:
    weight = torch.nn.Parameter(torch.zeros(SIZE // 4))
    found = Found([weight * 2])
    assert found.levels == []
