"""DiagnosisHandler: writes the recordings of torch.profiler, and diagnoses them while the job trains."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from tb_gpudiag.errors import without_url_secrets
from tb_gpudiag.training.clock_sender import ClockSender
from tb_gpudiag.training.event_records import write_with
from tb_gpudiag.training.helper import DiagnosisQueue, HelperAnswer, log_answer
from tb_gpudiag.training.noting_tensors import note_from_now_on
from tb_gpudiag.training.on_demand import ClockRecorder, OnDemand, is_of_signal
from tb_gpudiag.training.recordings_on_disk import KeptFiles, RecordingFiles, WrittenRecording
from tb_gpudiag.training.step_clock import StepClock

if TYPE_CHECKING:
    from tb_gpudiag.report.report_pb2 import Report

CLOSE_S: Final = 30.0
"""How long the end of the program waits for the last diagnoses."""

# A Path leaves one slash of a URL, and torch would write to a local folder with such a name.
_URL: Final = re.compile(r".*://|(s3a?|gc?s|az|abfss?):/")

logger = logging.getLogger("tb_gpudiag.training")


class DiagnosisHandler:
    """Handler for `torch.profiler.profile(on_trace_ready=...)`. It takes the arguments of torch's
    `tensorboard_trace_handler` and writes the same files.

    A helper process of low priority diagnoses the recordings, one at a time. Each verdict is a line in the
    log (logger `tb_gpudiag.training`), or on standard error where no log shows it. If torch.distributed is
    initialized, rank 0 also logs the verdict of the job when all ranks have written. Nothing is raised into
    the training loop: failures are logged.

    on_diagnosis: called with each Report, on a thread of the handler.
    keep: how many recordings of this handler may be on disk. Those with findings stay longest, and those that
    were not diagnosed stay in any case.
    writer: where to write a compact record and the figures of each diagnosis for TensorBoard: a SummaryWriter
    of torch, or a directory, in which the handler writes its own event files below `gpudiag/`. None: nowhere.
    """

    def __init__(
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        use_gzip: bool = False,
        *,
        on_diagnosis: Callable[[Report], object] | None = None,
        keep: int | None = None,
        writer: Any = None,
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep is {keep}: keep at least one recording, or None for all")
        own_events = isinstance(writer, str | os.PathLike)
        self._writer = None if own_events else writer
        _refuse_url("dir_name", os.fspath(dir_name))
        self._folder = os.path.abspath(dir_name)  # the program may go to another directory
        _refuse_url("writer", os.fspath(writer) if own_events else "")
        event_folder = os.path.abspath(writer) if own_events else ""
        self._arguments = (self._folder, worker_name, use_gzip)
        given = event_folder or writer
        self._options: dict[str, Any] = {"on_diagnosis": on_diagnosis, "keep": keep, "writer": given}
        self._files = RecordingFiles(worker_name, use_gzip=use_gzip, event_folder=event_folder)
        self._kept = KeptFiles(keep) if keep is not None else None
        self._on_diagnosis = on_diagnosis
        self._queue = DiagnosisQueue(
            self._settle, with_report=on_diagnosis is not None, with_record=self._writer is not None
        )

    def __reduce__(self) -> tuple[object, ...]:
        """In a spawned process, make a new handler with the same arguments."""
        return functools.partial(type(self), *self._arguments, **self._options), ()

    def __call__(self, profiler: Any) -> None:
        """Write the profiler's recording and queue its diagnosis."""
        try:
            self._take(profiler)
            note_from_now_on(profiler)
        except Exception as error:  # the job must go on
            if is_of_signal(error):
                raise
            logger.warning("gpudiag: the recording was not written: %s", _reason(error))

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait for the diagnoses that are under way, then end the helper process.

        After timeout_s, the remaining diagnoses are skipped. The end of the program calls this, too. A later
        recording starts a new helper.
        """
        self._queue.close(timeout_s)

    def on_demand(
        self, active: int = 6, warmup: int = 2, *, trigger: Literal["slow_step"] | None = None
    ) -> OnDemand:
        """Return a schedule for `torch.profiler.profile(schedule=...)` that records on demand only.

        `touch DIR_NAME/profile-now` or SIGUSR2 records the next steps: `active` of them, after `warmup`. A
        program that handles SIGUSR2 itself keeps its handler.
        trigger: "slow_step" also records after a step that takes twice the median, at most every ten minutes.
        """
        if trigger not in (None, "slow_step"):
            raise ValueError(f'trigger is {trigger!r}: it can be "slow_step" or None')
        with contextlib.suppress(OSError):  # the first recording says why
            os.makedirs(self._folder, exist_ok=True)
        return OnDemand(self._folder, active=active, warmup=warmup, slow_step=trigger is not None)

    def step_clock(
        self, model: Any = None, optimizer: Any = None, *, active: int = 6, warmup: int = 2, **options: Any
    ) -> StepClock:
        """Return a clock for the whole run: `for batch in clock(loader)`. See StepClock.

        model: what the loop calls, such as a DistributedDataParallel; None for steps without phases.
        optimizer: None if each batch is a step. active, warmup: of its recordings, as for `on_demand`, which
        is also how else it can be made to record. options: of `torch.profiler.profile`; by default with
        shapes and stacks.
        """
        options = {"record_shapes": True, "with_stack": True, **options}
        recorder = ClockRecorder(self, self.on_demand(active, warmup), options)
        clock = StepClock(recorder, ClockSender(self._folder, _rank_and_world_size))
        clock.start(model, optimizer)
        return clock

    @property
    def skipped(self) -> int:
        """How many recordings were not diagnosed, because earlier diagnoses took too long."""
        return self._queue.skipped

    def _take(self, profiler: Any) -> None:
        rank, world_size = _rank_and_world_size()
        # A step clock has a few of the ranks record.
        world_size = getattr(profiler, "gpudiag_ranks", 0) or world_size
        before_rename = self._kept.make_room if self._kept is not None else lambda: None
        recording = self._files.write(self._folder, profiler, before_rename, rank=rank, world_size=world_size)
        profiler.gpudiag_file = os.path.basename(recording.path)  # its clock says so
        if self._kept is not None:
            self._kept.add(recording.path)
        self._queue.put(recording)

    def _settle(self, recording: WrittenRecording, answer: HelperAnswer) -> None:
        """Report a diagnosis. Runs on the thread of the queue."""
        if self._kept is not None and answer.ok:
            self._kept.settle(recording.path, found=answer.found)
        log_answer(answer, of_first_rank=recording.rank == 0)
        if answer.note:
            logger.warning("gpudiag: %s", answer.note)
        if self._writer is not None and answer.record:
            try:
                write_with(self._writer, answer.record, answer.figures, recording.step)
            except Exception as error:  # a closed writer, a full disk
                logger.warning("gpudiag: no record was written: %s", _reason(error))
        if self._on_diagnosis is not None and answer.report:
            from tb_gpudiag.report.report_pb2 import Report

            try:
                self._on_diagnosis(Report.FromString(answer.report))
            except BaseException:  # the user's code, which may even exit: only this thread would end
                logger.exception("gpudiag: on_diagnosis failed on %s", recording.path)


def _refuse_url(argument: str, folder: str) -> None:
    if _URL.match(folder):
        raise ValueError(
            f"{argument} is a URL, {without_url_secrets(folder)}: name a local folder, "
            "where the store is mounted or whose files you copy to it"
        )


def _rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks; (0, 1) if torch.distributed is not initialized."""
    distributed = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):  # a torch that was built without it
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
