"""The Arrow tables of a trace: their columns, and what each one means. The documentation shows this text."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

TEXT: Final = pa.dictionary(pa.int32(), pa.string())
INT: Final = pa.int64()
SMALL: Final = pa.int32()
BOOL: Final = pa.bool_()
REAL: Final = pa.float32()


class ColumnText(NamedTuple):
    """A column: its name, its type, and one line that describes it."""

    name: str
    kind: pa.DataType
    text: str


class TableText(NamedTuple):
    """A table: what its rows are, and its columns."""

    text: str
    columns: tuple[ColumnText, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.kind) for column in self.columns])


def _table(text: str, *columns: tuple[str, pa.DataType, str]) -> TableText:
    return TableText(text, (*OF_TRACE, *(ColumnText(*column) for column in columns)))


OF_TRACE: Final = (
    ColumnText("trace", SMALL, "number of the trace, from 0; join on it where there are several"),
    ColumnText("run", TEXT, "run of the trace: its folder below the path that you gave"),
    ColumnText("worker", TEXT, "worker of the trace, such as a rank: from the file's name"),
)
"""The first columns of every table."""

_DEVICE = ("device", SMALL, "number of the GPU")
_STEP = ("step", SMALL, "number of its step, see `steps`; null outside of the steps")
_EVENT = ("event", INT, "number of the event, see `events`")
_START = ("start_ns", INT, "since the start of the trace")
_LENGTH = ("duration_ns", INT, "")
_PLACES = (
    ("operator", TEXT, "innermost operator around"),
    ("module", TEXT, "nearest nn.Module around; in backward the forward operator's"),
    ("line", TEXT, "nearest line or function of yours; in backward the forward operator's"),
)

TABLES: Final[dict[str, TableText]] = {
    "traces": _table(
        "The traces that were read, one row each.",
        ("file", TEXT, "path of the file"),
        ("host", TEXT, "machine that recorded it"),
        ("rank", SMALL, "rank in the job"),
        ("gpu", TEXT, "name of the busiest GPU"),
        ("device", SMALL, "number of the busiest GPU, which the verdict is about; null without one"),
        ("window_start_ns", INT, "where the step window begins: verdict and costs are over it"),
        ("window_ns", INT, "length of the step window"),
        ("steps", SMALL, "steps in the step window"),
        ("step_ns", INT, "time of a step, the median; null without steps"),
    ),
    "events": _table(
        "All that was recorded: operators, calls, Python frames, kernels, marks. In order of start.",
        _EVENT,
        ("category", TEXT, "`cpu_op`, `runtime`, `driver`, `python_function`, `user_annotation`, `kernel` …"),
        ("name", TEXT, ""),
        ("thread", TEXT, "process and thread, or GPU and stream"),
        _START,
        _LENGTH,
        ("device", SMALL, "number of the GPU, of GPU work"),
        ("stream", SMALL, "of GPU work"),
        ("correlation", INT, "the same for a call and its GPU work"),
        ("bytes", INT, "of copies and memsets"),
        ("parent", INT, "event around it on its thread"),
        ("depth", SMALL, "0 for an outermost event of a thread"),
        *_PLACES,
        ("shapes", TEXT, "shapes of an operator's inputs, as JSON, where recorded"),
    ),
    "steps": _table(
        "Steps of the step window, marked or inferred: a row for each GPU, and without a GPU one row.",
        ("step", SMALL, "number, from 0"),
        ("name", TEXT, ""),
        _DEVICE,
        ("start_ns", INT, "where the step begins on the GPU"),
        ("duration_ns", INT, "computing + copying + communicating + idle"),
        ("host_start_ns", INT, "where the host began it: it may run ahead"),
        ("host_duration_ns", INT, "how long the host took"),
        ("computing_ns", INT, "null without a GPU, as are the next three"),
        ("copying_ns", INT, "while nothing computed or communicated"),
        ("communicating_ns", INT, "while nothing computed"),
        ("idle_ns", INT, "nothing ran on the GPU"),
    ),
    "engine_steps": _table(
        "Steps of an inference server's engine in the step window, on the busiest GPU: runs of the model for "
        "a batch of requests. They are the `steps`, if there are several.",
        ("step", SMALL, "number, from 0"),
        ("name", TEXT, ""),
        ("kind", TEXT, "`prefill`, `decode`, `mixed`, `idle` or `forward` (not known)"),
        _DEVICE,
        ("start_ns", INT, "where the step begins on the GPU"),
        ("duration_ns", INT, "until the next step begins on the GPU"),
        ("requests", SMALL, "null if the server does not say, as are the next three"),
        ("prefill_requests", SMALL, "of requests: at their prompts"),
        ("decode_requests", SMALL, "of requests: at their next token"),
        ("tokens", SMALL, "that the model computes"),
        ("busy_ns", INT, "something ran on the GPU"),
        ("waiting_ns", INT, "of the idle time: there was no batch to run"),
        ("gap_ns", INT, "from the end of earlier work to the step's first work; null if nothing came before"),
        ("event", INT, "number of the step's mark, or of the function that runs the model, see `events`"),
    ),
    "launches": _table(
        "Launch calls of the step window. A launch of a CUDA graph is one row, with all its kernels.",
        ("event", INT, "number of the call, see `events`"),
        ("name", TEXT, "of the call, such as `cudaLaunchKernel`"),
        ("thread", TEXT, ""),
        ("device", SMALL, "number of the GPU that it launched on"),
        _START,
        ("duration_ns", INT, "in the call"),
        ("step", SMALL, "number of the step in which the host made it"),
        *_PLACES,
        ("work", INT, "event of the first GPU work that it launched"),
        ("work_name", TEXT, "name of that work"),
        ("work_start_ns", INT, "when that work began"),
        ("kernel_ns", INT, "duration of all that it launched"),
        ("empty_queue", BOOL, "the GPU had nothing left to do when the call returned"),
        ("dispatch_ns", INT, "time in operators since the thread's launch before it"),
        ("python_ns", INT, "time in Python since the thread's launch before it"),
        ("full_queue_ns", INT, "of duration_ns: blocked on a full queue"),
        ("idle_ns", INT, "idle time of the GPU that issuing it caused: dispatch, launch and latency"),
    ),
    "gaps": _table(
        "Stretches without work of a GPU, whole. For what the host did in them, see `idle`.",
        ("gap", INT, "number of the gap on its GPU"),
        _DEVICE,
        _START,
        _LENGTH,
        ("window_ns", INT, "of duration_ns: in the step window"),
        ("trigger", TEXT, "why the queue was empty: `drained`, `starved`, `queued` or `unknown`"),
        ("cause", TEXT, "cause of most of it"),
        ("causes", SMALL, "number of different causes in it"),
        ("ended_by", INT, "event of the work that ended it"),
        ("ended_by_name", TEXT, "name of that work"),
        ("launch", INT, "event of that work's launch"),
        ("blocked_in", INT, "event of the call that drained the queue"),
        ("blocked_ns", INT, "how long the host had been blocked in that call"),
    ),
    "idle": _table(
        "Idle time of the GPUs in pieces, each with one cause, cut at the borders of steps. The pieces of a "
        "step add up to its `idle_ns`, to the nanosecond.",
        ("gap", INT, "number of the gap on its GPU, see `gaps`"),
        _DEVICE,
        _START,
        _LENGTH,
        (
            "cause",
            TEXT,
            "`input`, `sync`, `dispatch`, `launch`, `python`, `latency` and others",
        ),
        ("in_window", BOOL, "in the step window"),
        _STEP,
        ("event", INT, "what the host did: innermost event, see `events`"),
        ("name", TEXT, "name of that event"),
        *_PLACES,
    ),
    "kernels": _table(
        "Work of the GPUs in the step window: kernels, copies and memsets, cut at the window's borders.",
        _EVENT,
        ("category", TEXT, "`kernel`, `memcpy` or `memset`"),
        _DEVICE,
        ("stream", SMALL, ""),
        ("name", TEXT, ""),
        ("family", TEXT, "`gemm`, `attention`, `elementwise`, `copy` and others"),
        ("arithmetic", TEXT, "`tensor_cores` and others, as far as the name says"),
        _START,
        _LENGTH,
        ("step", SMALL, "number of the step in which it began"),
        ("launch", INT, "event of the call that launched it, else of its operator"),
        *_PLACES,
        ("shapes", TEXT, "shapes of the operator's inputs, as JSON, where recorded"),
        ("blocks_per_sm", REAL, "blocks of its grid per multiprocessor"),
        ("warps_per_block", SMALL, ""),
        ("registers", SMALL, "per thread"),
        ("shared_bytes", INT, "shared memory per block"),
    ),
    "copies": _table(
        "Copies of the whole recording.",
        _EVENT,
        ("direction", TEXT, "`to_device`, `to_host`, or `other`, such as on the GPU"),
        ("name", TEXT, ""),
        ("pageable", BOOL, "one side is pageable host memory, as far as the name says"),
        _DEVICE,
        ("stream", SMALL, ""),
        _START,
        _LENGTH,
        ("bytes", INT, ""),
        ("in_window", BOOL, "began in the step window"),
        _STEP,
        ("call", INT, "event of the call"),
        ("call_ns", INT, "how long the host was in the call"),
        *_PLACES,
    ),
    "collectives": _table(
        "Collectives of the step window: of the GPUs, or without one of the CPU's back ends.",
        ("event", INT, "number of the kernel, or of the back end's mark, see `events`"),
        ("call", INT, "event of the host's operation"),
        ("device", SMALL, "number of the GPU; null on the CPU"),
        ("kind", TEXT, "such as `all_reduce`"),
        ("start_ns", INT, "when the rank arrived"),
        _LENGTH,
        ("exposed_ns", INT, "of duration_ns: nothing computed meanwhile"),
        ("why_exposed", TEXT, "`not_prefetched`, `late_launch`, `rate_limited` and others"),
        ("parallelism", TEXT, "`FSDP`, `DDP`, `tensor` and others, as far as it says so itself"),
        ("unit", TEXT, "FSDP's unit or the nn.Module that it is for"),
        ("number", SMALL, "its place among those of its step with the same kind and caller, from 1"),
        ("bytes", INT, "the larger of what goes in and what comes out"),
        ("process_group", TEXT, ""),
        ("group_size", SMALL, "ranks in the group"),
        ("sequence", INT, "counts the group's operations"),
        _STEP,
    ),
    "memory": _table(
        "Allocations, one row each.",
        ("device", SMALL, "number of the GPU; null for the CPU"),
        ("start_ns", INT, "when it was allocated"),
        ("end_ns", INT, "when it was freed; null if it was alive at the end"),
        ("bytes", INT, ""),
        ("operator", TEXT, "operator that wanted the memory"),
        ("module", TEXT, "nearest nn.Module around; in backward the forward operator's"),
        ("line", TEXT, "nearest line or function of yours"),
        ("phase", TEXT, "`forward`, `backward`, `optimizer`, `input` and others"),
        ("before_recording", BOOL, "a snapshot found it: it is older than the recording"),
        ("at_peak", BOOL, "alive when most was allocated on the device"),
        ("allocated_bytes", INT, "allocated on the device just after it"),
        ("reserved_bytes", INT, "reserved on the device just after it"),
    ),
    "findings": _table(
        "Findings, as the page shows them, one row each.",
        ("finding", SMALL, "number, from 0: the most important one first"),
        ("rule", TEXT, "id, such as `GD101`"),
        ("name", TEXT, "name of the rule"),
        ("severity", TEXT, "`ERROR`, `WARNING` or `INFO`"),
        ("title", TEXT, ""),
        ("summary", TEXT, ""),
        ("cost_ns", INT, "over the step window"),
        ("saving_low_ns", INT, "least that a fix saves, over the step window; null if it saves no time"),
        ("saving_high_ns", INT, "most that a fix saves"),
        ("basis", TEXT, "what the saving rests on: `replayed`, `estimate` or `at most`"),
        ("file", TEXT, "first place: file"),
        ("line", SMALL, "first place: line"),
        ("function", TEXT, "first place: function"),
    ),
}
