"""StepClock: times the phases of every step by hooks, for the whole run, and records slow ones."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tb_gpudiag.training.clock_sender import ClockSender
from tb_gpudiag.training.gpu_marks import GpuMarks
from tb_gpudiag.training.on_demand import OnDemand
from tb_gpudiag.training.phase_sampling import PhaseSampling
from tb_gpudiag.vocabulary.clock_phases import (
    BACKWARD,
    FORWARD,
    GARBAGE,
    INPUT,
    OPTIMIZER,
    OTHER,
    PHASES,
    WAIT,
)

if TYPE_CHECKING:
    from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

_NS_MS: Final = 1e-6
_UNTIMED_MS: Final = (math.nan,) * len(PHASES)
_UNTIMED_QUIET_MS: Final = tuple(0.0 if phase == GARBAGE else math.nan for phase in range(len(PHASES)))
"""Of a step without garbage collection."""

logger = logging.getLogger("tb_gpudiag.training")
_Hook = TypeVar("_Hook", bound=Callable[..., None])


def _harmless(hook: _Hook) -> _Hook:
    """Make a hook that does nothing when the clock is off, and turns it off where it fails."""

    @functools.wraps(hook)
    def harmless(self: StepClock, *values: Any) -> None:
        if self.is_on:
            try:
                hook(self, *values)
            except Exception as error:  # the training must go on
                self._turn_off(f"the step clock stopped: {type(error).__name__}: {error}")

    return harmless  # type: ignore[return-value]


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

    def __init__(
        self,
        handler: DiagnosisHandler,
        schedule: OnDemand,
        sender: ClockSender,
        model: Any,
        optimizer: Any,
        options: dict[str, Any],
    ) -> None:
        self.is_on = True
        self.number = 0
        """Of the step that runs, counted from 0."""
        self._handler, self._schedule, self._options = handler, schedule, options
        self._profiler: Any = None
        self._ranks = self._armed_at = 0
        self._sender = sender
        self._handles: list[Any] = []
        self._hooks: dict[Callable[..., None], tuple[dict[int, Any], int]] = {}
        """Hooks that time phases: in which dict of torch, and their key."""
        self._heard: set[Callable[..., None]] = set()
        """Hooks that torch has called. torch.compile compiles others again where they are taken away."""
        self._sampling = PhaseSampling()
        self.left = 0
        """Steps until one whose phases are timed; 0 in such a step."""
        self._ends_ns: list[int] = []  # of the steps since the last one whose phases were timed
        self._own_ns = 0
        self._gpu: GpuMarks | None = None
        self._needs_no_step = optimizer is None
        self._stepped, self._began = self._needs_no_step, False
        self._phase = OTHER
        self._spent_ns = [0] * len(PHASES)
        self._since_ns = self._start_ns = time.perf_counter_ns()
        self._garbage_ns = 0
        self._of_garbage_ns: Counter[int] = Counter()  # by step
        self._is_compiling: Callable[[], bool] = lambda: False
        self._waits = False
        self._is_training: Callable[[], bool] = lambda: True
        self._queue: Callable[[Callable[[], None]], None] = lambda _: None
        try:
            self._install(model, optimizer)
        except Exception as error:
            self._turn_off(f"there is no step clock: {type(error).__name__}: {error}")

    def __reduce__(self) -> tuple[object, ...]:
        """A copy of the model, as an average of its weights is, has hooks that do nothing."""
        return _stopped, ()

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
        self._turn_off("")

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
        if not self.left:
            self._enter(INPUT)

    def end_batch(self) -> None:
        """The batch is there, of a step whose phases are timed."""
        self._enter(OTHER)

    def _install(self, model: Any, optimizer: Any) -> None:
        if model is not None:
            import torch

            self._is_training = torch.is_grad_enabled
            compiler = getattr(torch, "compiler", None)
            self._is_compiling = getattr(compiler, "is_compiling", self._is_compiling)
            self._queue = torch.autograd.Variable._execution_engine.queue_callback
            if any(parameter.is_cuda for parameter in model.parameters()):
                self._gpu = GpuMarks(torch.cuda, self._sender.rows, len(PHASES), GARBAGE)
            self._waits = torch.distributed.is_available() and torch.distributed.is_initialized()
            is_ddp = type(model).__name__ == "DistributedDataParallel"
            # Before its model, DDP waits for the buffers of rank 0.
            before = self._on_ddp if is_ddp else self._on_forward
            self._handles.append(model.register_forward_pre_hook(before))
            if is_ddp:
                self._handles.append(model.module.register_forward_pre_hook(self._on_forward))
            self._handles.append(model.register_forward_hook(self._on_output))
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(self._on_optimizer))
        for handle in self._handles:
            hooks = handle.hooks_dict_ref()
            self._hooks[hooks[handle.id]] = hooks, handle.id
        if optimizer is not None:
            self._handles.append(optimizer.register_step_post_hook(self._on_optimized))
        gc.callbacks.append(self._on_garbage)
        self._sender.start()

    @_harmless
    def _end_step(self) -> None:
        """End a step whose phases are timed, or before one."""
        self._enter(OTHER)
        now_ns = self._since_ns
        self.number += 1
        if self._profiler is not None:  # recorded steps are slower
            if self._gpu is not None:
                self._gpu.drop_step()
        elif self.left:
            self._ends_ns.append(now_ns)
            self._add_untimed()
        else:
            self._sampling.add(self._own_ns, now_ns - self._start_ns)
            self._add_row(self.number - 1, now_ns - self._start_ns, [ns * _NS_MS for ns in self._spent_ns])
        self._began, self._stepped = False, self._needs_no_step
        try:
            self._record()
        except Exception as error:
            self._profiler = None
            logger.warning("gpudiag: no recording: %s", error)
        timed_before, self.left = not self.left, 0
        # All ranks record from the same step on.
        if self._profiler is None and not self._sender.has_orders:
            self.left = self._sampling.untimed(self.number)
        if bool(self.left) is timed_before:
            self._listen()
        self._spent_ns = [0] * len(PHASES)
        self._own_ns = 0
        # Saving a recording takes long, and is no step's.
        self._since_ns = self._start_ns = time.perf_counter_ns()

    def _listen(self) -> None:
        """Begin to time phases, or stop: a model without hooks is faster."""
        for hook, (hooks, key) in self._hooks.items():
            if not self.left:
                hooks[key] = hook
            elif hook in self._heard:
                hooks.pop(key, None)
        if self._gpu is not None:
            self._gpu.restart(OTHER if not self.left else None)

    def _add_untimed(self) -> None:
        """Add the steps since the last one whose phases were timed."""
        start_ns, add = self._start_ns, self._sender.rows.append
        is_quiet = self._gpu is None and not self._of_garbage_ns
        for number, end_ns in enumerate(self._ends_ns, self.number - len(self._ends_ns)):
            if is_quiet:
                add((number, (end_ns - start_ns) * _NS_MS, *_UNTIMED_QUIET_MS))
            else:
                self._add_row(number, end_ns - start_ns, [*_UNTIMED_MS])
            start_ns = end_ns
        self._ends_ns.clear()

    def _add_row(self, number: int, total_ns: int, spent_ms: list[float]) -> None:
        total_ms = total_ns * _NS_MS
        spent_ms[GARBAGE] = self._of_garbage_ns.pop(number, 0) * _NS_MS
        if self._gpu is None:
            self._sender.rows.append((number, total_ms, *spent_ms))
        else:
            self._gpu.end_step(number, total_ms, spent_ms[GARBAGE])

    def _enter(self, phase: int) -> None:
        """Begin a phase, and with it end the one before. Raises nothing."""
        now_ns = time.perf_counter_ns()
        self._spent_ns[self._phase] += now_ns - self._since_ns
        self._since_ns = now_ns
        self._phase = phase
        if self._gpu is not None and self.is_on and not self.left:
            try:
                self._gpu.mark(phase)
            except Exception as error:
                self._turn_off(f"the step clock stopped: {type(error).__name__}: {error}")
        self._own_ns += time.perf_counter_ns() - now_ns

    def _on_ddp(self, *_: Any) -> None:
        if self.is_on and not self._is_compiling() and self._is_training():
            self._heard.add(self._on_ddp)
            self._enter(WAIT)

    def _on_forward(self, *_: Any) -> None:
        # torch.compile traces hooks of modules inside: there, they are nothing.
        if self.is_on and not self._is_compiling() and self._is_training():
            self._heard.add(self._on_forward)
            self._enter(FORWARD)

    @_harmless
    def _on_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        """The forward phase goes on until the backward pass comes to the output: the loss is in it."""
        if self._is_compiling() or not self._is_training():
            return
        now_ns = time.perf_counter_ns()
        self._heard.add(self._on_output)
        if self._phase == WAIT:  # a compiled model inside DDP has no hooks
            self._enter(FORWARD)
        tensor = _first_with_gradient(output)
        if tensor is None:
            self._enter(OTHER)
        else:
            tensor.register_hook(self._on_backward)
        self._own_ns += time.perf_counter_ns() - now_ns

    @_harmless
    def _on_backward(self, _gradient: Any) -> None:
        if not self.left:  # else it is the loss of an earlier step
            self._enter(BACKWARD)
            self._queue(self._on_gradients)

    @_harmless
    def _on_gradients(self) -> None:
        if self._waits:  # for other ranks, in a callback that was queued after this one
            self._enter(WAIT)
            self._queue(self._on_backward_end)
        else:
            self._enter(OTHER)

    def _on_backward_end(self) -> None:
        self._enter(OTHER)

    def _on_optimizer(self, *_: Any) -> None:
        self._heard.add(self._on_optimizer)
        self._enter(OPTIMIZER)

    def _on_optimized(self, *_: Any) -> None:
        self._stepped = True
        if not self.left:
            self._enter(OTHER)

    def _on_garbage(self, what: str, _about: object) -> None:
        """Time of garbage collections is not that of the phase around them."""
        now_ns = time.perf_counter_ns()
        if what == "start":
            self._garbage_ns = now_ns
        elif self._garbage_ns:
            spent_ns = now_ns - max(self._garbage_ns, self._since_ns)
            self._of_garbage_ns[self.number] += spent_ns
            self._since_ns += spent_ns
            self._garbage_ns = 0

    def _record(self) -> None:
        """Begin, go on with, or end a recording."""
        if self._profiler is None:
            for why, ranks in self._sender.orders(self.number):
                self._schedule.arm(why)
                self._ranks = ranks
            if self._schedule.is_armed():
                self._start_recording()
            return
        self._profiler.step()
        if self._schedule.is_recording:
            # Not in the warm-up, whose metadata is lost.
            self._profiler.add_metadata("gpudiag_why", self._schedule.why)
        elif not self._schedule.is_busy:
            profiler, self._profiler = self._profiler, None
            profiler.stop()
            if getattr(profiler, "gpudiag_file", ""):
                self._sender.made.append((profiler.gpudiag_file, self._schedule.why, self._armed_at))

    def _start_recording(self) -> None:
        from torch.autograd import _profiler_enabled
        from torch.profiler import profile

        if _profiler_enabled():  # the program's own: a second one would end it
            return
        self._profiler = profile(
            schedule=lambda _: self._schedule(self.number), on_trace_ready=self._handler, **self._options
        )
        self._profiler.step_num = self._armed_at = self.number
        self._profiler.gpudiag_ranks, self._ranks = self._ranks, 0
        self._profiler.start()

    def _turn_off(self, why: str) -> None:
        if not self.is_on:
            return
        self.is_on = False
        with contextlib.suppress(Exception):
            if self._ends_ns:
                self._add_untimed()
        if why:
            logger.warning("gpudiag: %s", why)
        with contextlib.suppress(Exception):
            gc.callbacks.remove(self._on_garbage)
            for handle in self._handles:
                handle.remove()
        profiler, self._profiler = self._profiler, None
        with contextlib.suppress(Exception):
            if profiler is not None:
                profiler.stop()
        with contextlib.suppress(Exception):
            self._sender.close()


class TimedLoader:
    """An iterable of batches that says when each is waited for."""

    def __init__(self, clock: StepClock, loader: Iterable[Any]) -> None:
        self._clock, self._loader = clock, loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        clock = self._clock
        clock.begin_batch()  # the first batch of an epoch waits for workers to start
        for batch in self._loader:
            if not clock.left:
                clock.end_batch()
            yield batch
            clock.begin_batch()
        if not clock.left:
            clock.end_batch()


def _first_with_gradient(output: Any) -> Any:
    """Return the first tensor of a model's output through which gradients flow; None without one."""
    if hasattr(output, "requires_grad"):
        return output if output.requires_grad else None
    values = output.values() if isinstance(output, Mapping) else output
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        return None
    return next((found for value in values if (found := _first_with_gradient(value)) is not None), None)


def _stopped() -> StepClock:
    """Return a clock that is off."""
    clock = StepClock.__new__(StepClock)
    clock.is_on = False
    return clock
