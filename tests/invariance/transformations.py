"""Changes of a recording's file that make no other job of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

Event = dict[str, Any]
Changed = list[Event] | None
"""The events of the file; None where the change does not apply."""

GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "Kernel", "Memcpy", "Memset"}
FLOWS = {"s", "t", "f"}
STEP = "ProfilerStep#"
FEWEST_STEPS = 4
HOUR_US = 3_600 * 10**6
GAP_US = 10
EXTERNAL_IDS = ("External id", "external id")
OTHER_IDS = ("correlation", "wait_on_cuda_event_record_corr_id")
TOTALS = ("Total Allocated", "Total Reserved")


class Transformation(NamedTuple):
    """change: of the events, which it may change in place. keeps_first: the first finding stays, too."""

    name: str
    change: Callable[[list[Event]], Changed]
    keeps_first: bool = True


def _args(event: Event) -> dict[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def _is_timed(event: Event) -> bool:
    return event.get("ph") != "M" and isinstance(event.get("ts"), int | float)


def _end(event: Event) -> float:
    return float(event["ts"] + (event.get("dur") or 0))


def gpu_clock(events: list[Event], late_us: float) -> Changed:
    gpu = _on_gpu(events)
    for event in gpu:
        event["ts"] += late_us
    return events if gpu else None


def an_hour_later(events: list[Event]) -> Changed:
    for event in events:
        if _is_timed(event):
            event["ts"] += HOUR_US
    return events


def in_any_order(events: list[Event]) -> Changed:
    random.Random(0).shuffle(events)
    return events


def whole_microseconds(events: list[Event]) -> Changed:
    for event in events:
        if _is_timed(event):
            end = int(_end(event))
            event["ts"] = int(event["ts"])
            if "dur" in event:
                event["dur"] = end - event["ts"]
    return events


def _add_to_ids(event: Event, correlation: int, external: int) -> None:
    """Some recorders write a kernel's correlation as its external id."""
    args = _args(event)
    own = args.get("correlation")
    for keys, more in ((OTHER_IDS, correlation), (EXTERNAL_IDS, external)):
        for key in keys:
            if isinstance(args.get(key), int) and args[key] > 0:
                args[key] += correlation if args[key] == own else more


def other_ids(events: list[Event]) -> Changed:
    for event in events:
        _add_to_ids(event, 1_000_000, 1_000_000)
    return events


def counters_and_another_process(events: list[Event]) -> Changed:
    timed = [event["ts"] for event in events if _is_timed(event)]
    if not timed:
        return None
    first, last = min(timed), max(timed)
    times = [first + (last - first) * part / 100 for part in range(100)]
    pid = 99_999_999
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": pid, "tid": pid, "dur": 10}
    events += [{"ph": "C", "name": "power", "pid": 0, "ts": ts, "args": {"W": 300}} for ts in times]
    events += [{**operator, "ts": ts, "args": {"External id": 0}} for ts in times]
    return events


def _marked_steps(events: list[Event]) -> list[Event]:
    marks = [
        event for event in events if str(event.get("name", "")).startswith(STEP) and event.get("ph") == "X"
    ]
    return sorted(
        (mark for mark in marks if mark.get("cat") not in GPU_CATEGORIES), key=lambda mark: mark["ts"]
    )


def _between(events: list[Event], first: float, last: float) -> list[Event]:
    """What is called between two times, as if recording began and ended there."""
    host = [event for event in events if _is_timed(event) and event.get("cat") not in GPU_CATEGORIES]
    gone = {
        _args(event).get("correlation")
        for event in host
        if event.get("cat") != "python_function" and not first <= event["ts"] < last
    } - {None}
    gpu = _on_gpu(events)
    return [
        *(part for event in host for part in _inside(event, first, last)),
        *(event for event in events if not _is_timed(event)),
        *(event for event in gpu if event["ts"] >= first and _args(event).get("correlation") not in gone),
    ]


def _inside(event: Event, first: float, last: float) -> list[Event]:
    """What of a host event is between two times: of a frame, which calls others, the part."""
    if event.get("cat") != "python_function":
        return [event] if first <= event["ts"] < last else []
    start, end = max(event["ts"], first), min(_end(event), last)
    return [{**event, "ts": start, "dur": end - start}] if start < end else []


def without_first_step(events: list[Event]) -> Changed:
    steps = _marked_steps(events)
    return _between(events, steps[1]["ts"], float("inf")) if len(steps) >= FEWEST_STEPS else None


def without_last_step(events: list[Event]) -> Changed:
    steps = _marked_steps(events)
    return _between(events, float("-inf"), steps[-1]["ts"]) if len(steps) >= FEWEST_STEPS else None


def without_stacks(events: list[Event]) -> Changed:
    kept = [event for event in events if event.get("cat") != "python_function"]
    old = [_args(event).pop("Call stack") for event in kept if "Call stack" in _args(event)]
    return kept if old or len(kept) < len(events) else None


def twice(events: list[Event]) -> Changed:
    """The loop runs twice as often: after its steps come the same again, with ids, steps, frames, nodes of
    autograd and addresses of their own, and with as much more memory as the first ones keep.

    What is before and after the loop, such as the end of recording, stays before and after it."""
    marks = _marked_steps(events)
    steps = len({mark["name"] for mark in marks})
    if steps < 2:  # what comes between the copies is in no step
        return None
    first, last = marks[0]["ts"], max(map(_end, marks))
    once, later = _between(events, float("-inf"), last), _between(events, first, float("inf"))
    later_us = max(last - first, _latest_work(once) - _first_work(later)) + GAP_US
    timed = [event for event in later if _is_timed(event) and event.get("ph") not in FLOWS]
    correlation = _span(events, OTHER_IDS)
    external = _span(
        [event for event in events if event.get("cat") in {"cpu_op", "user_annotation", "Operator"}],
        EXTERNAL_IDS,
    )
    frames = _span(events, ("Python id",))
    nodes = _span(events, ("Sequence number",)) + 1  # autograd counts on, from 0
    grown = _grown([event for event in once if _is_timed(event) and event["ts"] >= first])
    again = []
    for event in timed:
        copy = {**event, "ts": event["ts"] + later_us, "args": dict(_args(event))}
        _add_to_ids(copy, correlation, external)
        name = str(event.get("name", ""))
        if name.startswith(STEP):
            copy["name"] = f"{STEP}{int(name.removeprefix(STEP)) + steps}"
        more = {"Python id": frames, "Python parent id": frames, "Sequence number": nodes, "Addr": 2**44}
        if isinstance(copy["args"].get("Addr"), int):
            more |= {key: grown.get((_allocator(event), key), 0) for key in TOTALS}
        _add_to_args(copy["args"], more)
        again.append(copy)
    return once + again


def _first_work(events: list[Event]) -> float:
    return min((event["ts"] for event in _on_gpu(events)), default=0)


def _latest_work(events: list[Event]) -> float:
    return max(map(_end, _on_gpu(events)), default=float("-inf"))


def _on_gpu(events: list[Event]) -> list[Event]:
    return [event for event in events if event.get("cat") in GPU_CATEGORIES and _is_timed(event)]


def _add_to_args(args: dict[str, Any], more: dict[str, int]) -> None:
    for key in more:
        if isinstance(args.get(key), int):
            args[key] += more[key]


def _span(events: list[Event], keys: tuple[str, ...]) -> int:
    found = [_args(event).get(key) for event in events for key in keys]
    numbers = [number for number in found if isinstance(number, int) and number > 0]
    return max(numbers) - min(numbers) + 1 if numbers else 0


def _allocator(event: Event) -> tuple[Any, Any]:
    return _args(event).get("Device Type"), _args(event).get("Device Id")


def _grown(timed: list[Event]) -> dict[Any, int]:
    """How much each allocator's totals grow from before the first event to after the last."""
    first: dict[Any, int] = {}
    grown: dict[Any, int] = {}
    changes = [event for event in sorted(timed, key=lambda event: event["ts"]) if "Addr" in _args(event)]
    for key in TOTALS:
        for event in changes:
            place, args = (_allocator(event), key), _args(event)
            total = args.get(key)
            if isinstance(total, int):
                before = total - int(args.get("Bytes", 0)) * (key == "Total Allocated")
                grown[place] = total - first.setdefault(place, before)
    return grown


TRANSFORMATIONS = (
    *(
        Transformation(
            f"gpu {us} µs {'late' if sign > 0 else 'early'}", partial(gpu_clock, late_us=sign * us)
        )
        for us in (5, 20, 100, 200)
        for sign in (-1, 1)
    ),
    Transformation("an hour later", an_hour_later),
    Transformation("in any order", in_any_order),
    Transformation("whole microseconds", whole_microseconds),
    Transformation("other ids", other_ids),
    Transformation("counters and another process", counters_and_another_process),
    Transformation("without first step", without_first_step),
    Transformation("without last step", without_last_step),
    Transformation("without stacks", without_stacks, keeps_first=False),
    Transformation("twice", twice),
)
