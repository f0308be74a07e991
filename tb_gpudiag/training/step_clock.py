"""StepClock: times the phases of every step by hooks, for the whole run, and records slow ones."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tb_gpudiag.training.clock_sender import ClockSender
from tb_gpudiag.training.on_demand import ClockRecorder, is_of_signal
from tb_gpudiag.training.step_phases import (
    MOST_MARKS,
    GarbageTimes,
    GpuMarks,
    PhaseSampling,
    first_with_gradient,
)
from tb_gpudiag.vocabulary.written import BACKWARD, FORWARD, GARBAGE, INPUT, OPTIMIZER, OTHER, PHASES, WAIT

_NS_MS: Final = 1e-6
_UNTIMED_MS: Final = (math.nan,) * len(PHASES)
_UNTIMED_QUIET_MS: Final = tuple(0.0 if phase == GARBAGE else math.nan for phase in range(len(PHASES)))
"""Of a step without garbage collection."""

logger = logging.getLogger("tb_gpudiag.training")


class _Hook:
    """A hook of torch's. It does nothing when the clock is off, and turns it off where it fails.

    A copy of it, as in an average of the weights or in a checkpoint, is a function of Python's that does
    nothing: a checkpoint is read where gpudiag is not installed.
    """

    def __init__(self, clock: StepClock, do: Callable[..., None]) -> None:
        self._clock, self._do = clock, do
        self._hooks: dict[int, Any] = {}
        self._key = 0
        self.is_heard = False
        """torch has called it. torch.compile compiles others again where they are taken away."""

    def __call__(self, *values: Any) -> None:
        clock = self._clock
        # torch.compile traces hooks of modules inside: there, they are nothing.
        if clock.is_compiling() or not clock.is_on:
            return
        self.is_heard = True
        try:
            self._do(*values)
        except Exception as error:  # the training must go on
            clock.fail(error)

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

    def register(self, register: Callable[[Any], Any]) -> Any:
        """Have torch call it. Returns the handle."""
        handle = register(self)
        self._hooks, self._key = handle.hooks_dict_ref(), handle.id
        return handle

    def put(self, there: bool) -> None:
        """Take it away, or put it back: a model without hooks is faster."""
        if there:
            self._hooks[self._key] = self
        elif self.is_heard:
            self._hooks.pop(self._key, None)


class StepClock:
    """Times each step: `for batch in clock(loader)`, or `clock.step()` at the end of each.

    Steps and their phases go to TensorBoard's Scalars (`gpudiag/clock/…`, in ms), below
    `DIR_NAME/gpudiag/clock/rank-N`. Where steps get slower, or a rank is later than the others, the ranks
    that matter record a few steps for the handler. Make it with `DiagnosisHandler.step_clock`.

    A step ends with the first batch after the optimizer's step; without an optimizer, with each batch. Phases
    are host time, and on a GPU the time between events on its current stream, except for `garbage`: Python's
    garbage collection. `wait` is what DDP waits for other ranks. Not all short steps have phases: see
    PhaseSampling. Nothing is synchronized or communicated, and nothing is raised into the training.
    """

    def __init__(self, recorder: ClockRecorder | None = None, sender: ClockSender | None = None) -> None:
        self.is_on = False
        self.number = 0
        """Of the step that runs, counted from 0."""
        self._recorder: Any = recorder
        self._sender: Any = sender
        self._undo = contextlib.ExitStack()
        self._hooks: list[_Hook] = []  # of the model
        self._has_hooks = True
        self._loops: weakref.WeakSet[object] = weakref.WeakSet()
        """Those that end without a last batch are let go of."""
        self._backward, self._gradients, self._backward_end = (
            _Hook(self, do) for do in (self._on_backward, self._on_gradients, self._on_backward_end)
        )
        self._nodes: list[Any] = []
        """Handles of hooks of this step's outputs: one that is kept would have more and more of them."""
        self._sampling = PhaseSampling()
        self._rows: Any = None
        self.left = 0
        """Steps until one whose phases are timed; 0 in such a step."""
        self._ends_ns: list[int] = []  # of the steps since the last one whose phases were timed
        self._own_ns = 0
        self._gpu: GpuMarks | None = None
        self._needs_no_step = self._stepped = True
        self._began = False
        self._phase = OTHER
        self._spent_ns = [0] * len(PHASES)
        self._since_ns = self._start_ns = time.perf_counter_ns()
        self._garbage = GarbageTimes()
        self.is_compiling: Callable[[], bool] = lambda: False
        self._waits = False
        self._is_training: Callable[[], bool] = lambda: True
        self._queue: Callable[[Callable[[], None]], None] = lambda _: None

    def start(self, model: Any, optimizer: Any) -> None:
        """Begin to time: see `DiagnosisHandler.step_clock`. Raises nothing."""
        folder = self._sender.folder
        for older in [clock for clock in _started if clock.is_on and clock._sender.folder == folder]:
            # A cell of a notebook that runs again makes a new one.
            logger.warning("gpudiag: a newer step clock writes to %s: the older one ends", folder)
            older.leave()
        self.is_on = True
        self._needs_no_step = self._stepped = optimizer is None
        _started.add(self)
        try:
            self._install(model, optimizer)
        except Exception as error:
            self.fail(error)
            self.close()

    def forget(self) -> None:
        """After a fork: be off, because nothing takes the steps."""
        self.is_on, self.left = False, 0
        if self._recorder is not None:
            self._recorder.forget()

    def __del__(self) -> None:
        """Of one that was not closed, nothing is left running."""
        if self.is_on and not sys.is_finalizing():
            self.leave()

    def __reduce__(self) -> tuple[object, ...]:
        """A copy is a clock that is off."""
        return StepClock, ()

    def __enter__(self) -> StepClock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, loader: Iterable[Any]) -> TimedLoader:
        """Return the loader, timed. Each epoch may wrap it again."""
        return TimedLoader(self, loader)

    def step(self) -> None:
        """End a step. `clock(loader)` does this, too."""
        if self.left > 1:
            self.left -= 1
            self._ends_ns.append(time.perf_counter_ns())
            self.number += 1
            self._began, self._stepped = False, self._needs_no_step
        else:
            self._end_step()

    def close(self) -> None:
        """Remove the hooks, and write what is left. The end of the program does the same."""
        self.leave()
        with contextlib.suppress(Exception):
            self._sender.close()

    def leave(self) -> None:
        """As `close`, but for what is left: that is written later."""
        self._turn_off()
        with contextlib.suppress(Exception):
            self._undo.close()

    def begin_batch(self) -> None:
        """Begin to wait for a batch: with it, the next step begins. Raises nothing."""
        if self._began and self._stepped:
            if self.left > 1:  # as `step` does: each call costs as much as all this
                self.left -= 1
                self._ends_ns.append(time.perf_counter_ns())
                self.number += 1
                self._stepped = self._needs_no_step
                return
            self._end_step()
        self._began = True
        self.begin_waiting()

    def begin_waiting(self) -> None:
        """The loader begins to do something."""
        if not self.left:
            if not self._has_hooks and self.is_on:
                self._put_hooks(True)
            self._enter(INPUT)

    def end_waiting(self) -> None:
        """It has done it."""
        if not self.left:
            self._enter(OTHER)

    def begin_loop(self, batches: object) -> None:
        """A loop over batches begins, perhaps inside another one."""
        self._loops.add(batches)

    def end_loop(self, batches: object) -> None:
        """It has no batch left. After all loops the model has no hooks: TorchScript cannot compile them."""
        self._loops.discard(batches)
        if not self._loops:
            self._put_hooks(False)

    def fail(self, error: Exception) -> None:
        """Turn the clock off. The optimizer's hooks stay until it is closed: torch may be calling them.

        Raises the error again if it is of a signal's handler: the clock did not fail."""
        if is_of_signal(error):
            raise error
        if self.is_on:
            logger.warning("gpudiag: the step clock stopped: %s: %s", type(error).__name__, error)
        self._turn_off()

    def _install(self, model: Any, optimizer: Any) -> None:
        self._rows = self._recorder.outliers = self._sender.outliers()
        with contextlib.suppress(ImportError):
            self._recorder.watch()
        if model is not None:
            import torch

            self._torch = torch
            self._is_training = torch.is_grad_enabled
            compiler = getattr(torch, "compiler", None)
            self.is_compiling = getattr(compiler, "is_compiling", self.is_compiling)
            self._queue = torch.autograd.Variable._execution_engine.queue_callback
            if any(parameter.is_cuda for parameter in model.parameters()):
                self._gpu = GpuMarks(torch.cuda, self._rows, len(PHASES), GARBAGE)
            self._waits = torch.distributed.is_available() and torch.distributed.is_initialized()
            self._rows.knows_waits = not self._waits
            if type(model).__name__ == "DistributedDataParallel":
                self._rows.knows_waits = True
                # Before its model, DDP waits for the buffers of rank 0.
                self._hook(model.register_forward_pre_hook, self._on_ddp)
                self._hook(model.module.register_forward_pre_hook, self._on_forward)
            else:
                self._hook(model.register_forward_pre_hook, self._on_forward)
            self._hook(model.register_forward_hook, self._on_output)
        if optimizer is not None:
            for register, do in (
                (optimizer.register_step_pre_hook, self._on_optimizer),
                (optimizer.register_step_post_hook, self._on_optimized),
            ):
                self._undo.callback(_Hook(self, do).register(register).remove)
        self._garbage.start()
        self._undo.callback(self._garbage.stop)
        self._sender.start()

    def _hook(self, register: Callable[[Any], Any], do: Callable[..., None]) -> None:
        self._hooks.append(hook := _Hook(self, do))
        self._undo.callback(hook.register(register).remove)

    def _end_step(self) -> None:
        """End a step whose phases are timed, or before one. Raises nothing."""
        if self.is_on:
            try:
                self._end_timed_step()
            except Exception as error:
                self.fail(error)
        elif self._recorder is not None:
            self._recorder.end()  # it was closed on another thread

    def _end_timed_step(self) -> None:
        self._enter(OTHER)
        now_ns = self._since_ns
        self.number += 1
        for handle in self._nodes:
            handle.remove()
        self._nodes.clear()
        if self._recorder.is_recording:  # recorded steps are slower
            total_ms, wait_ms = (now_ns - self._start_ns) * _NS_MS, self._spent_ns[WAIT] * _NS_MS
            self._rows.recorded(self.number - 1, total_ms, wait_ms)
            if self._gpu is not None:
                self._gpu.drop_step()
        elif self.left:
            self._ends_ns.append(now_ns)
            self._add_untimed()
        else:
            self._rows.usual(self._sampling.add(self._own_ns, now_ns - self._start_ns) * _NS_MS)
            self._add_row(self.number - 1, now_ns - self._start_ns, [ns * _NS_MS for ns in self._spent_ns])
        self._began, self._stepped = False, self._needs_no_step
        try:
            made = self._recorder.step(self.number, self._sender.orders(self.number))
            if made is not None:
                self._sender.made.append(made)
        except Exception as error:
            if is_of_signal(error):
                raise
            logger.warning("gpudiag: no recording: %s", error)
        timed_before, self.left = not self.left, 0
        # All ranks record from the same step on.
        if not (self._recorder.is_recording or self._sender.has_orders or self._rows.listens):
            self.left = self._sampling.untimed(self.number)
        if bool(self.left) is timed_before:
            self._listen()
        self._spent_ns = [0] * len(PHASES)
        self._own_ns = 0
        # Saving a recording takes long, and is no step's.
        self._since_ns = self._start_ns = time.perf_counter_ns()

    def _listen(self) -> None:
        """Begin to time phases, or stop: a model without hooks is faster."""
        self._put_hooks(not self.left)
        if self._gpu is not None:
            self._gpu.restart(OTHER if not self.left else None)

    def _put_hooks(self, there: bool) -> None:
        self._has_hooks = there
        for hook in self._hooks:
            hook.put(there)

    def _add_untimed(self) -> None:
        """Add the steps since the last one whose phases were timed."""
        start_ns, add = self._start_ns, self._rows.append
        collections_ns = self._garbage.take()
        for number, end_ns in enumerate(self._ends_ns, self.number - len(self._ends_ns)):
            if self._gpu is None and not collections_ns:
                add((number, (end_ns - start_ns) * _NS_MS, *_UNTIMED_QUIET_MS))
            else:
                spent_ms = [*_UNTIMED_MS]
                spent_ms[GARBAGE] = _within_ns(collections_ns, start_ns, end_ns) * _NS_MS
                self._add_row(number, end_ns - start_ns, spent_ms)
            start_ns = end_ns
        self._ends_ns.clear()

    def _add_row(self, number: int, total_ns: int, spent_ms: list[float]) -> None:
        total_ms = total_ns * _NS_MS
        if self._gpu is None:
            self._rows.append((number, total_ms, *spent_ms))
        else:
            self._gpu.end_step(number, total_ms, spent_ms[GARBAGE])

    def _enter(self, phase: int) -> None:
        """Begin a phase, and with it end the one before. Raises nothing."""
        now_ns = time.perf_counter_ns()
        if not self.left:
            garbage_ns = _within_ns(self._garbage.take(), self._since_ns, now_ns)
            self._spent_ns[GARBAGE] += garbage_ns
            self._spent_ns[self._phase] += now_ns - self._since_ns - garbage_ns
        self._since_ns = now_ns
        self._phase = phase
        if self._gpu is not None and self.is_on and not self.left:
            try:
                self._gpu.mark(phase)
            except Exception as error:
                self.fail(error)
        self._own_ns += time.perf_counter_ns() - now_ns

    def _on_ddp(self, *_: Any) -> None:
        if self._is_training():
            self._enter(WAIT)

    def _on_forward(self, *_: Any) -> None:
        if self._is_training():
            self._enter(FORWARD)

    def _on_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        """The forward phase goes on until the backward pass comes to the output: the loss is in it."""
        if self.left or not self._is_training():
            return
        now_ns = time.perf_counter_ns()
        if self._phase == WAIT:  # a compiled model inside DDP has no hooks
            self._enter(FORWARD)
        node = first_with_gradient(output, self._torch)
        if node is None or len(self._nodes) == MOST_MARKS:
            self._enter(OTHER)
        else:
            self._nodes.append(node.register_prehook(self._backward))
        self._own_ns += time.perf_counter_ns() - now_ns

    def _on_backward(self, _gradients: Any) -> None:
        if not self.left:  # else it is the loss of an earlier step
            self._enter(BACKWARD)
            self._queue(self._gradients)

    def _on_gradients(self) -> None:
        if self._waits:  # for other ranks, in a callback that was queued after this one
            self._enter(WAIT)
            self._queue(self._backward_end)
        else:
            self._enter(OTHER)

    def _on_backward_end(self) -> None:
        self._enter(OTHER)

    def _on_optimizer(self, *_: Any) -> None:
        if not self.left:
            self._enter(OPTIMIZER)

    def _on_optimized(self, *_: Any) -> None:
        self._stepped = True
        if not self.left:
            self._enter(OTHER)

    def _turn_off(self) -> None:
        if not self.is_on:
            return
        self.is_on, self.left = False, 0
        self._put_hooks(False)
        with contextlib.suppress(Exception):
            if self._ends_ns:
                self._add_untimed()
        with contextlib.suppress(Exception):
            self._recorder.close()
        with contextlib.suppress(Exception):
            self._sender.end()


_started: Final = weakref.WeakSet[StepClock]()


def _forget_all() -> None:
    for clock in _started:
        clock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _within_ns(collections_ns: Iterable[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """Return how long garbage was collected between the two times."""
    return sum(max(min(end, end_ns) - max(begin, start_ns), 0) for begin, end in collections_ns)


class TimedLoader:
    """An iterable of batches that says when each is waited for."""

    def __init__(self, clock: StepClock, loader: Iterable[Any]) -> None:
        self._clock, self._loader = clock, loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._clock.begin_waiting()  # for workers to start
        try:
            return _TimedBatches(self._clock, iter(self._loader))
        finally:
            self._clock.end_waiting()


class _TimedBatches:
    """No generator: it would keep a batch that the loop has let go of."""

    def __init__(self, clock: StepClock, batches: Iterator[Any]) -> None:
        self._clock, self._batches = clock, batches
        clock.begin_loop(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._clock.begin_batch()
        try:
            return next(self._batches)
        except StopIteration:
            self._clock.end_loop(self)
            raise
        finally:
            self._clock.end_waiting()
