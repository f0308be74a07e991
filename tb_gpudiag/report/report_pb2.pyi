from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Report(_message.Message):
    schema_version: int
    generator: str
    trace: TraceInfo
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    verdict: Verdict
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    unchecked: _containers.RepeatedCompositeFieldContainer[Unchecked]
    memory: _containers.RepeatedCompositeFieldContainer[DeviceMemory]
    clear: _containers.RepeatedCompositeFieldContainer[Clear]
    launch_hotspots: _containers.RepeatedCompositeFieldContainer[LaunchHotspot]
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    plan: Plan
    inferred_steps: InferredSteps
    recording_cost: RecordingCost
    counters: _containers.RepeatedCompositeFieldContainer[Counter]
    step_time: StepTime
    better_recording: BetterRecording
    mfu: Mfu
    compile_log: CompileLog
    captured_graphs: CapturedGraphs
    serving: Serving
    hang: HangReport
    clock: ClockReport
    def __init__(self, schema_version: _Optional[int] = ..., generator: _Optional[str] = ..., trace: _Optional[_Union[TraceInfo, _Mapping[str, object]]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping[str, object]]]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping[str, object]]]] = ..., verdict: _Optional[_Union[Verdict, _Mapping[str, object]]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping[str, object]]]] = ..., unchecked: _Optional[_Iterable[_Union[Unchecked, _Mapping[str, object]]]] = ..., memory: _Optional[_Iterable[_Union[DeviceMemory, _Mapping[str, object]]]] = ..., clear: _Optional[_Iterable[_Union[Clear, _Mapping[str, object]]]] = ..., launch_hotspots: _Optional[_Iterable[_Union[LaunchHotspot, _Mapping[str, object]]]] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping[str, object]]]] = ..., plan: _Optional[_Union[Plan, _Mapping[str, object]]] = ..., inferred_steps: _Optional[_Union[InferredSteps, _Mapping[str, object]]] = ..., recording_cost: _Optional[_Union[RecordingCost, _Mapping[str, object]]] = ..., counters: _Optional[_Iterable[_Union[Counter, _Mapping[str, object]]]] = ..., step_time: _Optional[_Union[StepTime, _Mapping[str, object]]] = ..., better_recording: _Optional[_Union[BetterRecording, _Mapping[str, object]]] = ..., mfu: _Optional[_Union[Mfu, _Mapping[str, object]]] = ..., compile_log: _Optional[_Union[CompileLog, _Mapping[str, object]]] = ..., captured_graphs: _Optional[_Union[CapturedGraphs, _Mapping[str, object]]] = ..., serving: _Optional[_Union[Serving, _Mapping[str, object]]] = ..., hang: _Optional[_Union[HangReport, _Mapping[str, object]]] = ..., clock: _Optional[_Union[ClockReport, _Mapping[str, object]]] = ...) -> None: ...

class CapturedGraphs(_message.Message):
    files: _containers.RepeatedScalarFieldContainer[str]
    kernels: int
    matched: int
    sentence: str
    def __init__(self, files: _Optional[_Iterable[str]] = ..., kernels: _Optional[int] = ..., matched: _Optional[int] = ..., sentence: _Optional[str] = ...) -> None: ...

class Serving(_message.Message):
    server: str
    marked: bool
    sentence: str
    steps: int
    waiting_us: float
    waits_for_engine: bool
    def __init__(self, server: _Optional[str] = ..., marked: bool = ..., sentence: _Optional[str] = ..., steps: _Optional[int] = ..., waiting_us: _Optional[float] = ..., waits_for_engine: bool = ...) -> None: ...

class CompileLog(_message.Message):
    name: str
    torch: str
    entries: int
    malformed_entries: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., torch: _Optional[str] = ..., entries: _Optional[int] = ..., malformed_entries: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class BetterRecording(_message.Message):
    sentence: str
    code: str
    def __init__(self, sentence: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class Mfu(_message.Message):
    class Missing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        nothing: _ClassVar[Mfu.Missing]
        matmuls: _ClassVar[Mfu.Missing]
        shapes: _ClassVar[Mfu.Missing]
        flops: _ClassVar[Mfu.Missing]
        peak: _ClassVar[Mfu.Missing]
    nothing: Mfu.Missing
    matmuls: Mfu.Missing
    shapes: Mfu.Missing
    flops: Mfu.Missing
    peak: Mfu.Missing
    missing: Mfu.Missing
    sentence: str
    mfu: float
    hfu: float
    at_least: bool
    computes_in: str
    peak_teraflops: float
    assumed: str
    model_teraflops: float
    step_operations: float
    recomputing_us: float
    parts: _containers.RepeatedCompositeFieldContainer[MfuPart]
    steps: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, missing: _Optional[_Union[Mfu.Missing, str]] = ..., sentence: _Optional[str] = ..., mfu: _Optional[float] = ..., hfu: _Optional[float] = ..., at_least: bool = ..., computes_in: _Optional[str] = ..., peak_teraflops: _Optional[float] = ..., assumed: _Optional[str] = ..., model_teraflops: _Optional[float] = ..., step_operations: _Optional[float] = ..., recomputing_us: _Optional[float] = ..., parts: _Optional[_Iterable[_Union[MfuPart, _Mapping[str, object]]]] = ..., steps: _Optional[_Iterable[float]] = ...) -> None: ...

class MfuPart(_message.Message):
    class Part(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        idle: _ClassVar[MfuPart.Part]
        communicating: _ClassVar[MfuPart.Part]
        copying: _ClassVar[MfuPart.Part]
        memory_bound: _ClassVar[MfuPart.Part]
        low_efficiency: _ClassVar[MfuPart.Part]
        data_type: _ClassVar[MfuPart.Part]
        unknown: _ClassVar[MfuPart.Part]
        recomputed: _ClassVar[MfuPart.Part]
        model: _ClassVar[MfuPart.Part]
    idle: MfuPart.Part
    communicating: MfuPart.Part
    copying: MfuPart.Part
    memory_bound: MfuPart.Part
    low_efficiency: MfuPart.Part
    data_type: MfuPart.Part
    unknown: MfuPart.Part
    recomputed: MfuPart.Part
    model: MfuPart.Part
    part: MfuPart.Part
    us: float
    def __init__(self, part: _Optional[_Union[MfuPart.Part, str]] = ..., us: _Optional[float] = ...) -> None: ...

class StepTime(_message.Message):
    median_us: float
    low_us: float
    high_us: float
    steps: int
    inferred: bool
    mean_us: float
    unprofiled_us: float
    unprofiled_least_us: float
    unprofiled_most_us: float
    def __init__(self, median_us: _Optional[float] = ..., low_us: _Optional[float] = ..., high_us: _Optional[float] = ..., steps: _Optional[int] = ..., inferred: bool = ..., mean_us: _Optional[float] = ..., unprofiled_us: _Optional[float] = ..., unprofiled_least_us: _Optional[float] = ..., unprofiled_most_us: _Optional[float] = ...) -> None: ...

class TraceInfo(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        trace: _ClassVar[TraceInfo.Kind]
        snapshot: _ClassVar[TraceInfo.Kind]
        memory_timeline: _ClassVar[TraceInfo.Kind]
        record: _ClassVar[TraceInfo.Kind]
        job: _ClassVar[TraceInfo.Kind]
        hang: _ClassVar[TraceInfo.Kind]
        clock: _ClassVar[TraceInfo.Kind]
    trace: TraceInfo.Kind
    snapshot: TraceInfo.Kind
    memory_timeline: TraceInfo.Kind
    record: TraceInfo.Kind
    job: TraceInfo.Kind
    hang: TraceInfo.Kind
    clock: TraceInfo.Kind
    class Recorder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        torch: _ClassVar[TraceInfo.Recorder]
        nsys: _ClassVar[TraceInfo.Recorder]
        rocprof: _ClassVar[TraceInfo.Recorder]
    torch: TraceInfo.Recorder
    nsys: TraceInfo.Recorder
    rocprof: TraceInfo.Recorder
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        COMPLETE: _ClassVar[TraceInfo.Status]
        PARTIAL: _ClassVar[TraceInfo.Status]
        WRITING: _ClassVar[TraceInfo.Status]
    COMPLETE: TraceInfo.Status
    PARTIAL: TraceInfo.Status
    WRITING: TraceInfo.Status
    run: str
    worker: str
    span: str
    path: str
    status: TraceInfo.Status
    events: int
    malformed_events: int
    host: str
    rank: int
    world_size: int
    recorded: Recorded
    notes: _containers.RepeatedScalarFieldContainer[str]
    simulated: bool
    duration_us: float
    kind: TraceInfo.Kind
    recorder: TraceInfo.Recorder
    pid: int
    withheld: str
    reason: str
    def __init__(self, run: _Optional[str] = ..., worker: _Optional[str] = ..., span: _Optional[str] = ..., path: _Optional[str] = ..., status: _Optional[_Union[TraceInfo.Status, str]] = ..., events: _Optional[int] = ..., malformed_events: _Optional[int] = ..., host: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., recorded: _Optional[_Union[Recorded, _Mapping[str, object]]] = ..., notes: _Optional[_Iterable[str]] = ..., simulated: bool = ..., duration_us: _Optional[float] = ..., kind: _Optional[_Union[TraceInfo.Kind, str]] = ..., recorder: _Optional[_Union[TraceInfo.Recorder, str]] = ..., pid: _Optional[int] = ..., withheld: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Counter(_message.Message):
    name: str
    unit: str
    device: int
    samples: int
    least: float
    mean: float
    most: float
    timed: bool
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., device: _Optional[int] = ..., samples: _Optional[int] = ..., least: _Optional[float] = ..., mean: _Optional[float] = ..., most: _Optional[float] = ..., timed: bool = ...) -> None: ...

class RecordingCost(_message.Message):
    frames: int
    operators: int
    frame_us: float
    low_us: float
    high_us: float
    low_share: float
    high_share: float
    def __init__(self, frames: _Optional[int] = ..., operators: _Optional[int] = ..., frame_us: _Optional[float] = ..., low_us: _Optional[float] = ..., high_us: _Optional[float] = ..., low_share: _Optional[float] = ..., high_share: _Optional[float] = ...) -> None: ...

class Recorded(_message.Message):
    steps: bool
    stacks: bool
    shapes: bool
    memory: bool
    flops: bool
    def __init__(self, steps: bool = ..., stacks: bool = ..., shapes: bool = ..., memory: bool = ..., flops: bool = ...) -> None: ...

class CauseTime(_message.Message):
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        other: _ClassVar[CauseTime.Cause]
        input: _ClassVar[CauseTime.Cause]
        compile: _ClassVar[CauseTime.Cause]
        sync: _ClassVar[CauseTime.Cause]
        allocator: _ClassVar[CauseTime.Cause]
        collective: _ClassVar[CauseTime.Cause]
        python: _ClassVar[CauseTime.Cause]
        dispatch: _ClassVar[CauseTime.Cause]
        launch: _ClassVar[CauseTime.Cause]
        latency: _ClassVar[CauseTime.Cause]
        queued: _ClassVar[CauseTime.Cause]
        unlinked: _ClassVar[CauseTime.Cause]
        profiler: _ClassVar[CauseTime.Cause]
        initialization: _ClassVar[CauseTime.Cause]
        unrecorded: _ClassVar[CauseTime.Cause]
        computing: _ClassVar[CauseTime.Cause]
        copying: _ClassVar[CauseTime.Cause]
        communicating: _ClassVar[CauseTime.Cause]
        graph: _ClassVar[CauseTime.Cause]
        host: _ClassVar[CauseTime.Cause]
        requests: _ClassVar[CauseTime.Cause]
        waiting: _ClassVar[CauseTime.Cause]
    other: CauseTime.Cause
    input: CauseTime.Cause
    compile: CauseTime.Cause
    sync: CauseTime.Cause
    allocator: CauseTime.Cause
    collective: CauseTime.Cause
    python: CauseTime.Cause
    dispatch: CauseTime.Cause
    launch: CauseTime.Cause
    latency: CauseTime.Cause
    queued: CauseTime.Cause
    unlinked: CauseTime.Cause
    profiler: CauseTime.Cause
    initialization: CauseTime.Cause
    unrecorded: CauseTime.Cause
    computing: CauseTime.Cause
    copying: CauseTime.Cause
    communicating: CauseTime.Cause
    graph: CauseTime.Cause
    host: CauseTime.Cause
    requests: CauseTime.Cause
    waiting: CauseTime.Cause
    cause: CauseTime.Cause
    us: float
    def __init__(self, cause: _Optional[_Union[CauseTime.Cause, str]] = ..., us: _Optional[float] = ...) -> None: ...

class TriggerTime(_message.Message):
    class Trigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        unknown: _ClassVar[TriggerTime.Trigger]
        drained: _ClassVar[TriggerTime.Trigger]
        starved: _ClassVar[TriggerTime.Trigger]
        queued: _ClassVar[TriggerTime.Trigger]
    unknown: TriggerTime.Trigger
    drained: TriggerTime.Trigger
    starved: TriggerTime.Trigger
    queued: TriggerTime.Trigger
    trigger: TriggerTime.Trigger
    us: float
    def __init__(self, trigger: _Optional[_Union[TriggerTime.Trigger, str]] = ..., us: _Optional[float] = ...) -> None: ...

class Device(_message.Message):
    id: int
    name: str
    span_us: float
    busy_us: float
    idle_us: float
    gaps: int
    idle_by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    idle_by_trigger: _containers.RepeatedCompositeFieldContainer[TriggerTime]
    window_us: float
    window_idle_us: float
    window_idle_by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    window_start_us: float
    window_computing_us: float
    window_copying_us: float
    window_communicating_us: float
    step_accounts: _containers.RepeatedCompositeFieldContainer[StepAccount]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., span_us: _Optional[float] = ..., busy_us: _Optional[float] = ..., idle_us: _Optional[float] = ..., gaps: _Optional[int] = ..., idle_by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., idle_by_trigger: _Optional[_Iterable[_Union[TriggerTime, _Mapping[str, object]]]] = ..., window_us: _Optional[float] = ..., window_idle_us: _Optional[float] = ..., window_idle_by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., window_start_us: _Optional[float] = ..., window_computing_us: _Optional[float] = ..., window_copying_us: _Optional[float] = ..., window_communicating_us: _Optional[float] = ..., step_accounts: _Optional[_Iterable[_Union[StepAccount, _Mapping[str, object]]]] = ...) -> None: ...

class StepAccount(_message.Message):
    name: str
    start_us: float
    duration_us: float
    computing_us: float
    copying_us: float
    communicating_us: float
    idle_by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    def __init__(self, name: _Optional[str] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ..., computing_us: _Optional[float] = ..., copying_us: _Optional[float] = ..., communicating_us: _Optional[float] = ..., idle_by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ...) -> None: ...

class Step(_message.Message):
    name: str
    start_us: float
    duration_us: float
    def __init__(self, name: _Optional[str] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ...) -> None: ...

class InferredSteps(_message.Message):
    class Sign(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        none: _ClassVar[InferredSteps.Sign]
        module: _ClassVar[InferredSteps.Sign]
        input: _ClassVar[InferredSteps.Sign]
        threads: _ClassVar[InferredSteps.Sign]
        one_call: _ClassVar[InferredSteps.Sign]
        part: _ClassVar[InferredSteps.Sign]
    none: InferredSteps.Sign
    module: InferredSteps.Sign
    input: InferredSteps.Sign
    threads: InferredSteps.Sign
    one_call: InferredSteps.Sign
    part: InferredSteps.Sign
    sign: InferredSteps.Sign
    are_steps: bool
    inside: str
    device: int
    repetitions: int
    period_launches: int
    setup_us: float
    tail_us: float
    median_us: float
    accounts: _containers.RepeatedCompositeFieldContainer[StepAccount]
    def __init__(self, sign: _Optional[_Union[InferredSteps.Sign, str]] = ..., are_steps: bool = ..., inside: _Optional[str] = ..., device: _Optional[int] = ..., repetitions: _Optional[int] = ..., period_launches: _Optional[int] = ..., setup_us: _Optional[float] = ..., tail_us: _Optional[float] = ..., median_us: _Optional[float] = ..., accounts: _Optional[_Iterable[_Union[StepAccount, _Mapping[str, object]]]] = ...) -> None: ...

class Verdict(_message.Message):
    class Limiter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        unknown: _ClassVar[Verdict.Limiter]
        input: _ClassVar[Verdict.Limiter]
        launch: _ClassVar[Verdict.Limiter]
        sync: _ClassVar[Verdict.Limiter]
        python: _ClassVar[Verdict.Limiter]
        compute: _ClassVar[Verdict.Limiter]
        copy: _ClassVar[Verdict.Limiter]
        communication: _ClassVar[Verdict.Limiter]
        memory: _ClassVar[Verdict.Limiter]
        initialization: _ClassVar[Verdict.Limiter]
        mixed: _ClassVar[Verdict.Limiter]
        compile: _ClassVar[Verdict.Limiter]
        requests: _ClassVar[Verdict.Limiter]
        waiting: _ClassVar[Verdict.Limiter]
        evaluation: _ClassVar[Verdict.Limiter]
    unknown: Verdict.Limiter
    input: Verdict.Limiter
    launch: Verdict.Limiter
    sync: Verdict.Limiter
    python: Verdict.Limiter
    compute: Verdict.Limiter
    copy: Verdict.Limiter
    communication: Verdict.Limiter
    memory: Verdict.Limiter
    initialization: Verdict.Limiter
    mixed: Verdict.Limiter
    compile: Verdict.Limiter
    requests: Verdict.Limiter
    waiting: Verdict.Limiter
    evaluation: Verdict.Limiter
    limiter: Verdict.Limiter
    sentence: str
    busy_share: float
    headline: str
    where: str
    leak: str
    def __init__(self, limiter: _Optional[_Union[Verdict.Limiter, str]] = ..., sentence: _Optional[str] = ..., busy_share: _Optional[float] = ..., headline: _Optional[str] = ..., where: _Optional[str] = ..., leak: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        INFO: _ClassVar[Finding.Severity]
        WARNING: _ClassVar[Finding.Severity]
        ERROR: _ClassVar[Finding.Severity]
    INFO: Finding.Severity
    WARNING: Finding.Severity
    ERROR: Finding.Severity
    rule: str
    name: str
    severity: Finding.Severity
    title: str
    summary: str
    cost_us: float
    saving: Saving
    evidence: _containers.RepeatedCompositeFieldContainer[Evidence]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    fix: Fix
    ranges: _containers.RepeatedCompositeFieldContainer[TimeRange]
    cost_bytes: float
    cost_bytes_per_step: float
    memory_device: int
    certain: bool
    def __init__(self, rule: _Optional[str] = ..., name: _Optional[str] = ..., severity: _Optional[_Union[Finding.Severity, str]] = ..., title: _Optional[str] = ..., summary: _Optional[str] = ..., cost_us: _Optional[float] = ..., saving: _Optional[_Union[Saving, _Mapping[str, object]]] = ..., evidence: _Optional[_Iterable[_Union[Evidence, _Mapping[str, object]]]] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping[str, object]]]] = ..., fix: _Optional[_Union[Fix, _Mapping[str, object]]] = ..., ranges: _Optional[_Iterable[_Union[TimeRange, _Mapping[str, object]]]] = ..., cost_bytes: _Optional[float] = ..., cost_bytes_per_step: _Optional[float] = ..., memory_device: _Optional[int] = ..., certain: bool = ...) -> None: ...

class Saving(_message.Message):
    low_us: float
    high_us: float
    basis: str
    low_share: float
    high_share: float
    low_per_step_us: float
    high_per_step_us: float
    beyond: str
    likely_us: float
    likely_share: float
    likely_per_step_us: float
    least_possible_share: float
    possible_share: float
    pairs: int
    def __init__(self, low_us: _Optional[float] = ..., high_us: _Optional[float] = ..., basis: _Optional[str] = ..., low_share: _Optional[float] = ..., high_share: _Optional[float] = ..., low_per_step_us: _Optional[float] = ..., high_per_step_us: _Optional[float] = ..., beyond: _Optional[str] = ..., likely_us: _Optional[float] = ..., likely_share: _Optional[float] = ..., likely_per_step_us: _Optional[float] = ..., least_possible_share: _Optional[float] = ..., possible_share: _Optional[float] = ..., pairs: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    fixes: _containers.RepeatedCompositeFieldContainer[PlannedFix]
    whole_us: float
    error_share: float
    per_step: bool
    def __init__(self, fixes: _Optional[_Iterable[_Union[PlannedFix, _Mapping[str, object]]]] = ..., whole_us: _Optional[float] = ..., error_share: _Optional[float] = ..., per_step: bool = ...) -> None: ...

class PlannedFix(_message.Message):
    finding: int
    rule: str
    name: str
    saving_us: float
    least_us: float
    most_us: float
    likely_us: float
    def __init__(self, finding: _Optional[int] = ..., rule: _Optional[str] = ..., name: _Optional[str] = ..., saving_us: _Optional[float] = ..., least_us: _Optional[float] = ..., most_us: _Optional[float] = ..., likely_us: _Optional[float] = ...) -> None: ...

class Evidence(_message.Message):
    label: str
    value: str
    number: float
    unit: str
    def __init__(self, label: _Optional[str] = ..., value: _Optional[str] = ..., number: _Optional[float] = ..., unit: _Optional[str] = ...) -> None: ...

class Place(_message.Message):
    class LineKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        UNKNOWN: _ClassVar[Place.LineKind]
        DEFINITION: _ClassVar[Place.LineKind]
        RUNNING: _ClassVar[Place.LineKind]
    UNKNOWN: Place.LineKind
    DEFINITION: Place.LineKind
    RUNNING: Place.LineKind
    file: str
    line: int
    function: str
    operator: str
    us: float
    bytes: float
    line_kind: Place.LineKind
    module: str
    range: str
    caller: Place
    candidates: _containers.RepeatedCompositeFieldContainer[SourceLine]
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., operator: _Optional[str] = ..., us: _Optional[float] = ..., bytes: _Optional[float] = ..., line_kind: _Optional[_Union[Place.LineKind, str]] = ..., module: _Optional[str] = ..., range: _Optional[str] = ..., caller: _Optional[_Union[Place, _Mapping[str, object]]] = ..., candidates: _Optional[_Iterable[_Union[SourceLine, _Mapping[str, object]]]] = ...) -> None: ...

class SourceLine(_message.Message):
    line: int
    text: str
    def __init__(self, line: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Fix(_message.Message):
    text: str
    code: str
    url: str
    def __init__(self, text: _Optional[str] = ..., code: _Optional[str] = ..., url: _Optional[str] = ...) -> None: ...

class TimeRange(_message.Message):
    start_us: float
    end_us: float
    device: int
    def __init__(self, start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., device: _Optional[int] = ...) -> None: ...

class Unchecked(_message.Message):
    rule: str
    reason: str
    how_to_record: str
    name: str
    defect: bool
    def __init__(self, rule: _Optional[str] = ..., reason: _Optional[str] = ..., how_to_record: _Optional[str] = ..., name: _Optional[str] = ..., defect: bool = ...) -> None: ...

class Clear(_message.Message):
    rule: str
    name: str
    reason: str
    def __init__(self, rule: _Optional[str] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LaunchHotspot(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        operator: _ClassVar[LaunchHotspot.Kind]
        module: _ClassVar[LaunchHotspot.Kind]
        line: _ClassVar[LaunchHotspot.Kind]
        kernel: _ClassVar[LaunchHotspot.Kind]
    operator: LaunchHotspot.Kind
    module: LaunchHotspot.Kind
    line: LaunchHotspot.Kind
    kernel: LaunchHotspot.Kind
    key: str
    kind: LaunchHotspot.Kind
    launches: int
    host_us: float
    kernel_us: float
    empty_queue_share: float
    idle_us: float
    dispatch_us: float
    python_us: float
    idle_per_step_us: float
    full_queue_launches: int
    full_queue_us: float
    ranges: _containers.RepeatedCompositeFieldContainer[TimeRange]
    def __init__(self, key: _Optional[str] = ..., kind: _Optional[_Union[LaunchHotspot.Kind, str]] = ..., launches: _Optional[int] = ..., host_us: _Optional[float] = ..., kernel_us: _Optional[float] = ..., empty_queue_share: _Optional[float] = ..., idle_us: _Optional[float] = ..., dispatch_us: _Optional[float] = ..., python_us: _Optional[float] = ..., idle_per_step_us: _Optional[float] = ..., full_queue_launches: _Optional[int] = ..., full_queue_us: _Optional[float] = ..., ranges: _Optional[_Iterable[_Union[TimeRange, _Mapping[str, object]]]] = ...) -> None: ...

class Table(_message.Message):
    id: str
    title: str
    about: str
    columns: _containers.RepeatedCompositeFieldContainer[TableColumn]
    rows: _containers.RepeatedCompositeFieldContainer[TableRow]
    first: int
    def __init__(self, id: _Optional[str] = ..., title: _Optional[str] = ..., about: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[TableColumn, _Mapping[str, object]]]] = ..., rows: _Optional[_Iterable[_Union[TableRow, _Mapping[str, object]]]] = ..., first: _Optional[int] = ...) -> None: ...

class TableColumn(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        text: _ClassVar[TableColumn.Kind]
        code: _ClassVar[TableColumn.Kind]
        name: _ClassVar[TableColumn.Kind]
        number: _ClassVar[TableColumn.Kind]
    text: TableColumn.Kind
    code: TableColumn.Kind
    name: TableColumn.Kind
    number: TableColumn.Kind
    class Shown(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        everywhere: _ClassVar[TableColumn.Shown]
        page: _ClassVar[TableColumn.Shown]
        data: _ClassVar[TableColumn.Shown]
    everywhere: TableColumn.Shown
    page: TableColumn.Shown
    data: TableColumn.Shown
    id: str
    title: str
    explanation: str
    kind: TableColumn.Kind
    unit: str
    shown: TableColumn.Shown
    texts: _containers.RepeatedScalarFieldContainer[str]
    numbers: _containers.RepeatedScalarFieldContainer[float]
    tips: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., title: _Optional[str] = ..., explanation: _Optional[str] = ..., kind: _Optional[_Union[TableColumn.Kind, str]] = ..., unit: _Optional[str] = ..., shown: _Optional[_Union[TableColumn.Shown, str]] = ..., texts: _Optional[_Iterable[str]] = ..., numbers: _Optional[_Iterable[float]] = ..., tips: _Optional[_Iterable[str]] = ...) -> None: ...

class TableRow(_message.Message):
    ranges: _containers.RepeatedCompositeFieldContainer[TimeRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[TimeRange, _Mapping[str, object]]]] = ...) -> None: ...

class DeviceMemory(_message.Message):
    device: int
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    capacity_bytes: float
    floor_slope_bytes_per_step: float
    sites: _containers.RepeatedCompositeFieldContainer[MemorySite]
    name: str
    relative: bool
    peak_us: float
    peak_phase: str
    reserved_at_peak_bytes: float
    floors: _containers.RepeatedCompositeFieldContainer[MemoryFloor]
    trend: FloorTrend
    peak_owners: _containers.RepeatedCompositeFieldContainer[MemoryOwner]
    peak_kinds: _containers.RepeatedCompositeFieldContainer[MemoryKind]
    reserve: MemoryReserve
    steps_until_full: float
    start_bytes: float
    end_bytes: float
    segments: _containers.RepeatedCompositeFieldContainer[MemorySegment]
    failures: _containers.RepeatedCompositeFieldContainer[MemoryFailure]
    def __init__(self, device: _Optional[int] = ..., peak_allocated_bytes: _Optional[float] = ..., peak_reserved_bytes: _Optional[float] = ..., capacity_bytes: _Optional[float] = ..., floor_slope_bytes_per_step: _Optional[float] = ..., sites: _Optional[_Iterable[_Union[MemorySite, _Mapping[str, object]]]] = ..., name: _Optional[str] = ..., relative: bool = ..., peak_us: _Optional[float] = ..., peak_phase: _Optional[str] = ..., reserved_at_peak_bytes: _Optional[float] = ..., floors: _Optional[_Iterable[_Union[MemoryFloor, _Mapping[str, object]]]] = ..., trend: _Optional[_Union[FloorTrend, _Mapping[str, object]]] = ..., peak_owners: _Optional[_Iterable[_Union[MemoryOwner, _Mapping[str, object]]]] = ..., peak_kinds: _Optional[_Iterable[_Union[MemoryKind, _Mapping[str, object]]]] = ..., reserve: _Optional[_Union[MemoryReserve, _Mapping[str, object]]] = ..., steps_until_full: _Optional[float] = ..., start_bytes: _Optional[float] = ..., end_bytes: _Optional[float] = ..., segments: _Optional[_Iterable[_Union[MemorySegment, _Mapping[str, object]]]] = ..., failures: _Optional[_Iterable[_Union[MemoryFailure, _Mapping[str, object]]]] = ...) -> None: ...

class MemoryFailure(_message.Message):
    us: float
    requested_bytes: float
    place: Place
    def __init__(self, us: _Optional[float] = ..., requested_bytes: _Optional[float] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ...) -> None: ...

class MemorySegment(_message.Message):
    address: str
    bytes: float
    used_bytes: float
    largest_free_bytes: float
    blocks: int
    expandable: bool
    def __init__(self, address: _Optional[str] = ..., bytes: _Optional[float] = ..., used_bytes: _Optional[float] = ..., largest_free_bytes: _Optional[float] = ..., blocks: _Optional[int] = ..., expandable: bool = ...) -> None: ...

class MemorySite(_message.Message):
    operator: str
    stack: str
    bytes: float
    count: int
    bytes_per_step: float
    place: Place
    size_bytes: float
    steps: int
    module: str
    ranges: _containers.RepeatedCompositeFieldContainer[TimeRange]
    def __init__(self, operator: _Optional[str] = ..., stack: _Optional[str] = ..., bytes: _Optional[float] = ..., count: _Optional[int] = ..., bytes_per_step: _Optional[float] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ..., size_bytes: _Optional[float] = ..., steps: _Optional[int] = ..., module: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[TimeRange, _Mapping[str, object]]]] = ...) -> None: ...

class MemoryFloor(_message.Message):
    name: str
    us: float
    bytes: float
    excused: bool
    def __init__(self, name: _Optional[str] = ..., us: _Optional[float] = ..., bytes: _Optional[float] = ..., excused: bool = ...) -> None: ...

class FloorTrend(_message.Message):
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        step: _ClassVar[FloorTrend.Unit]
        second: _ClassVar[FloorTrend.Unit]
    step: FloorTrend.Unit
    second: FloorTrend.Unit
    bytes_per_step: float
    low_bytes_per_step: float
    high_bytes_per_step: float
    start_us: float
    start_bytes: float
    end_us: float
    end_bytes: float
    state: str
    steps: int
    unit: FloorTrend.Unit
    word: str
    def __init__(self, bytes_per_step: _Optional[float] = ..., low_bytes_per_step: _Optional[float] = ..., high_bytes_per_step: _Optional[float] = ..., start_us: _Optional[float] = ..., start_bytes: _Optional[float] = ..., end_us: _Optional[float] = ..., end_bytes: _Optional[float] = ..., state: _Optional[str] = ..., steps: _Optional[int] = ..., unit: _Optional[_Union[FloorTrend.Unit, str]] = ..., word: _Optional[str] = ...) -> None: ...

class MemoryOwner(_message.Message):
    kind: MemoryKind.Kind
    operator: str
    module: str
    place: Place
    bytes: float
    count: int
    largest_bytes: float
    def __init__(self, kind: _Optional[_Union[MemoryKind.Kind, str]] = ..., operator: _Optional[str] = ..., module: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ..., bytes: _Optional[float] = ..., count: _Optional[int] = ..., largest_bytes: _Optional[float] = ...) -> None: ...

class MemoryKind(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        unknown: _ClassVar[MemoryKind.Kind]
        before: _ClassVar[MemoryKind.Kind]
        parameter: _ClassVar[MemoryKind.Kind]
        gradient: _ClassVar[MemoryKind.Kind]
        optimizer_state: _ClassVar[MemoryKind.Kind]
        activation: _ClassVar[MemoryKind.Kind]
        temporary: _ClassVar[MemoryKind.Kind]
        input: _ClassVar[MemoryKind.Kind]
    unknown: MemoryKind.Kind
    before: MemoryKind.Kind
    parameter: MemoryKind.Kind
    gradient: MemoryKind.Kind
    optimizer_state: MemoryKind.Kind
    activation: MemoryKind.Kind
    temporary: MemoryKind.Kind
    input: MemoryKind.Kind
    kind: MemoryKind.Kind
    bytes: float
    def __init__(self, kind: _Optional[_Union[MemoryKind.Kind, str]] = ..., bytes: _Optional[float] = ...) -> None: ...

class MemoryReserve(_message.Message):
    unused_at_peak_bytes: float
    most_unused_bytes: float
    growths: int
    shrinks: int
    steady_growths: int
    steady_shrinks: int
    out_of_memory: int
    retries: int
    driver_us: float
    segments: int
    largest_free_bytes: float
    free_in_used_segments_bytes: float
    def __init__(self, unused_at_peak_bytes: _Optional[float] = ..., most_unused_bytes: _Optional[float] = ..., growths: _Optional[int] = ..., shrinks: _Optional[int] = ..., steady_growths: _Optional[int] = ..., steady_shrinks: _Optional[int] = ..., out_of_memory: _Optional[int] = ..., retries: _Optional[int] = ..., driver_us: _Optional[float] = ..., segments: _Optional[int] = ..., largest_free_bytes: _Optional[float] = ..., free_in_used_segments_bytes: _Optional[float] = ...) -> None: ...

class ReportState(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        queued: _ClassVar[ReportState.State]
        running: _ClassVar[ReportState.State]
        ready: _ClassVar[ReportState.State]
        failed: _ClassVar[ReportState.State]
    queued: ReportState.State
    running: ReportState.State
    ready: ReportState.State
    failed: ReportState.State
    state: ReportState.State
    progress: float
    error: Problem
    report: Report
    stage: str
    job: JobReport
    history: History
    comparison: Comparison
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., report: _Optional[_Union[Report, _Mapping[str, object]]] = ..., stage: _Optional[str] = ..., job: _Optional[_Union[JobReport, _Mapping[str, object]]] = ..., history: _Optional[_Union[History, _Mapping[str, object]]] = ..., comparison: _Optional[_Union[Comparison, _Mapping[str, object]]] = ...) -> None: ...

class Problem(_message.Message):
    what: str
    where: str
    remedy: str
    def __init__(self, what: _Optional[str] = ..., where: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class TraceList(_message.Message):
    traces: _containers.RepeatedCompositeFieldContainer[TraceEntry]
    generation: int
    scanned: bool
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    unchanged: bool
    removed: _containers.RepeatedScalarFieldContainer[str]
    whole: bool
    more: bool
    def __init__(self, traces: _Optional[_Iterable[_Union[TraceEntry, _Mapping[str, object]]]] = ..., generation: _Optional[int] = ..., scanned: bool = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping[str, object]]]] = ..., unchanged: bool = ..., removed: _Optional[_Iterable[str]] = ..., whole: bool = ..., more: bool = ...) -> None: ...

class TraceEntry(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        new: _ClassVar[TraceEntry.State]
        queued: _ClassVar[TraceEntry.State]
        running: _ClassVar[TraceEntry.State]
        ready: _ClassVar[TraceEntry.State]
        failed: _ClassVar[TraceEntry.State]
        ranks: _ClassVar[TraceEntry.State]
    new: TraceEntry.State
    queued: TraceEntry.State
    running: TraceEntry.State
    ready: TraceEntry.State
    failed: TraceEntry.State
    ranks: TraceEntry.State
    id: str
    run: str
    worker: str
    span: str
    size_bytes: float
    modified_s: float
    state: TraceEntry.State
    error: Problem
    limiter: Verdict.Limiter
    sentence: str
    writing: bool
    content: str
    kind: TraceInfo.Kind
    origin: str
    of_rank: bool
    def __init__(self, id: _Optional[str] = ..., run: _Optional[str] = ..., worker: _Optional[str] = ..., span: _Optional[str] = ..., size_bytes: _Optional[float] = ..., modified_s: _Optional[float] = ..., state: _Optional[_Union[TraceEntry.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., limiter: _Optional[_Union[Verdict.Limiter, str]] = ..., sentence: _Optional[str] = ..., writing: bool = ..., content: _Optional[str] = ..., kind: _Optional[_Union[TraceInfo.Kind, str]] = ..., origin: _Optional[str] = ..., of_rank: bool = ...) -> None: ...

class Timeline(_message.Message):
    class LaneKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        stream: _ClassVar[Timeline.LaneKind]
        gaps: _ClassVar[Timeline.LaneKind]
        thread: _ClassVar[Timeline.LaneKind]
        queue: _ClassVar[Timeline.LaneKind]
        counter: _ClassVar[Timeline.LaneKind]
    stream: Timeline.LaneKind
    gaps: Timeline.LaneKind
    thread: Timeline.LaneKind
    queue: Timeline.LaneKind
    counter: Timeline.LaneKind
    start_us: float
    end_us: float
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    steps: _containers.RepeatedCompositeFieldContainer[StepMark]
    state: ReportState.State
    error: Problem
    names: _containers.RepeatedScalarFieldContainer[str]
    progress: float
    def __init__(self, start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., lanes: _Optional[_Iterable[_Union[Lane, _Mapping[str, object]]]] = ..., steps: _Optional[_Iterable[_Union[StepMark, _Mapping[str, object]]]] = ..., state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., names: _Optional[_Iterable[str]] = ..., progress: _Optional[float] = ...) -> None: ...

class Lane(_message.Message):
    kind: Timeline.LaneKind
    title: str
    device: int
    box_start_us: _containers.RepeatedScalarFieldContainer[float]
    box_duration_us: _containers.RepeatedScalarFieldContainer[float]
    box_name: _containers.RepeatedScalarFieldContainer[int]
    box_depth: _containers.RepeatedScalarFieldContainer[int]
    box_count: _containers.RepeatedScalarFieldContainer[int]
    box_kind: _containers.RepeatedScalarFieldContainer[int]
    box_gap: _containers.RepeatedScalarFieldContainer[int]
    queue: Curve
    queue_most: float
    unit: str
    def __init__(self, kind: _Optional[_Union[Timeline.LaneKind, str]] = ..., title: _Optional[str] = ..., device: _Optional[int] = ..., box_start_us: _Optional[_Iterable[float]] = ..., box_duration_us: _Optional[_Iterable[float]] = ..., box_name: _Optional[_Iterable[int]] = ..., box_depth: _Optional[_Iterable[int]] = ..., box_count: _Optional[_Iterable[int]] = ..., box_kind: _Optional[_Iterable[int]] = ..., box_gap: _Optional[_Iterable[int]] = ..., queue: _Optional[_Union[Curve, _Mapping[str, object]]] = ..., queue_most: _Optional[float] = ..., unit: _Optional[str] = ...) -> None: ...

class Curve(_message.Message):
    time_us: _containers.RepeatedScalarFieldContainer[float]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, time_us: _Optional[_Iterable[float]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ...) -> None: ...

class MemorySlice(_message.Message):
    state: ReportState.State
    error: Problem
    progress: float
    device: int
    start_us: float
    end_us: float
    trace_start_us: float
    trace_end_us: float
    allocated: Curve
    reserved: Curve
    exact: bool
    steps: _containers.RepeatedCompositeFieldContainer[StepMark]
    allocated_bytes: float
    allocations: int
    freed_bytes: float
    frees: int
    survived_bytes: float
    survivors: int
    kept_bytes: float
    sites: _containers.RepeatedCompositeFieldContainer[SliceSite]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., progress: _Optional[float] = ..., device: _Optional[int] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., trace_start_us: _Optional[float] = ..., trace_end_us: _Optional[float] = ..., allocated: _Optional[_Union[Curve, _Mapping[str, object]]] = ..., reserved: _Optional[_Union[Curve, _Mapping[str, object]]] = ..., exact: bool = ..., steps: _Optional[_Iterable[_Union[StepMark, _Mapping[str, object]]]] = ..., allocated_bytes: _Optional[float] = ..., allocations: _Optional[int] = ..., freed_bytes: _Optional[float] = ..., frees: _Optional[int] = ..., survived_bytes: _Optional[float] = ..., survivors: _Optional[int] = ..., kept_bytes: _Optional[float] = ..., sites: _Optional[_Iterable[_Union[SliceSite, _Mapping[str, object]]]] = ...) -> None: ...

class SliceSite(_message.Message):
    operator: str
    place: Place
    allocated_bytes: float
    allocations: int
    survived_bytes: float
    kept_bytes: float
    def __init__(self, operator: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ..., allocated_bytes: _Optional[float] = ..., allocations: _Optional[int] = ..., survived_bytes: _Optional[float] = ..., kept_bytes: _Optional[float] = ...) -> None: ...

class StepMark(_message.Message):
    name: str
    start_us: float
    end_us: float
    def __init__(self, name: _Optional[str] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ...) -> None: ...

class GapChain(_message.Message):
    state: ReportState.State
    error: Problem
    device: int
    start_us: float
    end_us: float
    trigger: TriggerTime.Trigger
    by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    before: GpuWork
    after: GpuWork
    launch: HostCall
    host: _containers.RepeatedCompositeFieldContainer[HostSegment]
    rank: int
    gaps: int
    longer: GapPlace
    shorter: GapPlace
    progress: float
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., device: _Optional[int] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., trigger: _Optional[_Union[TriggerTime.Trigger, str]] = ..., by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., before: _Optional[_Union[GpuWork, _Mapping[str, object]]] = ..., after: _Optional[_Union[GpuWork, _Mapping[str, object]]] = ..., launch: _Optional[_Union[HostCall, _Mapping[str, object]]] = ..., host: _Optional[_Iterable[_Union[HostSegment, _Mapping[str, object]]]] = ..., rank: _Optional[int] = ..., gaps: _Optional[int] = ..., longer: _Optional[_Union[GapPlace, _Mapping[str, object]]] = ..., shorter: _Optional[_Union[GapPlace, _Mapping[str, object]]] = ..., progress: _Optional[float] = ...) -> None: ...

class GapPlace(_message.Message):
    gap: int
    start_us: float
    end_us: float
    def __init__(self, gap: _Optional[int] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ...) -> None: ...

class GpuWork(_message.Message):
    name: str
    stream: int
    start_us: float
    duration_us: float
    operator: str
    def __init__(self, name: _Optional[str] = ..., stream: _Optional[int] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ..., operator: _Optional[str] = ...) -> None: ...

class HostCall(_message.Message):
    name: str
    thread: str
    start_us: float
    duration_us: float
    operator: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., thread: _Optional[str] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ..., operator: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ...) -> None: ...

class HostSegment(_message.Message):
    cause: CauseTime.Cause
    name: str
    start_us: float
    duration_us: float
    place: str
    def __init__(self, cause: _Optional[_Union[CauseTime.Cause, str]] = ..., name: _Optional[str] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ..., place: _Optional[str] = ...) -> None: ...

class TimelineEvent(_message.Message):
    number: int
    name: str
    kind: int
    lane: int
    depth: int
    start_us: float
    duration_us: float
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., kind: _Optional[int] = ..., lane: _Optional[int] = ..., depth: _Optional[int] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ...) -> None: ...

class Matches(_message.Message):
    state: ReportState.State
    error: Problem
    progress: float
    total: int
    first: int
    events: _containers.RepeatedCompositeFieldContainer[TimelineEvent]
    per_part: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., progress: _Optional[float] = ..., total: _Optional[int] = ..., first: _Optional[int] = ..., events: _Optional[_Iterable[_Union[TimelineEvent, _Mapping[str, object]]]] = ..., per_part: _Optional[_Iterable[int]] = ...) -> None: ...

class EventDetails(_message.Message):
    state: ReportState.State
    error: Problem
    progress: float
    event: TimelineEvent
    track: str
    module: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    correlation: str
    external_id: str
    shapes: str
    types: str
    settings: str
    bytes: float
    blocks: float
    warps_per_block: int
    registers: int
    shared_bytes: float
    blocks_per_sm: float
    links: _containers.RepeatedCompositeFieldContainer[EventLink]
    links_left_out: int
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., progress: _Optional[float] = ..., event: _Optional[_Union[TimelineEvent, _Mapping[str, object]]] = ..., track: _Optional[str] = ..., module: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., correlation: _Optional[str] = ..., external_id: _Optional[str] = ..., shapes: _Optional[str] = ..., types: _Optional[str] = ..., settings: _Optional[str] = ..., bytes: _Optional[float] = ..., blocks: _Optional[float] = ..., warps_per_block: _Optional[int] = ..., registers: _Optional[int] = ..., shared_bytes: _Optional[float] = ..., blocks_per_sm: _Optional[float] = ..., links: _Optional[_Iterable[_Union[EventLink, _Mapping[str, object]]]] = ..., links_left_out: _Optional[int] = ...) -> None: ...

class EventLink(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        launch: _ClassVar[EventLink.Kind]
        release: _ClassVar[EventLink.Kind]
        backward: _ClassVar[EventLink.Kind]
    launch: EventLink.Kind
    release: EventLink.Kind
    backward: EventLink.Kind
    kind: EventLink.Kind
    leads_here: bool
    event: TimelineEvent
    def __init__(self, kind: _Optional[_Union[EventLink.Kind, str]] = ..., leads_here: bool = ..., event: _Optional[_Union[TimelineEvent, _Mapping[str, object]]] = ...) -> None: ...

class RangeStatistics(_message.Message):
    state: ReportState.State
    error: Problem
    progress: float
    start_us: float
    end_us: float
    devices: _containers.RepeatedCompositeFieldContainer[DeviceRange]
    threads: _containers.RepeatedCompositeFieldContainer[ThreadRange]
    operators: _containers.RepeatedCompositeFieldContainer[NamedTime]
    calls: _containers.RepeatedCompositeFieldContainer[NamedTime]
    kernels: _containers.RepeatedCompositeFieldContainer[NamedTime]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., progress: _Optional[float] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., devices: _Optional[_Iterable[_Union[DeviceRange, _Mapping[str, object]]]] = ..., threads: _Optional[_Iterable[_Union[ThreadRange, _Mapping[str, object]]]] = ..., operators: _Optional[_Iterable[_Union[NamedTime, _Mapping[str, object]]]] = ..., calls: _Optional[_Iterable[_Union[NamedTime, _Mapping[str, object]]]] = ..., kernels: _Optional[_Iterable[_Union[NamedTime, _Mapping[str, object]]]] = ...) -> None: ...

class DeviceRange(_message.Message):
    device: int
    computing_us: float
    copying_us: float
    communicating_us: float
    idle_by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    outside_us: float
    gaps: int
    def __init__(self, device: _Optional[int] = ..., computing_us: _Optional[float] = ..., copying_us: _Optional[float] = ..., communicating_us: _Optional[float] = ..., idle_by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., outside_us: _Optional[float] = ..., gaps: _Optional[int] = ...) -> None: ...

class ThreadRange(_message.Message):
    title: str
    operators_us: float
    calls_us: float
    python_us: float
    annotations_us: float
    nothing_us: float
    def __init__(self, title: _Optional[str] = ..., operators_us: _Optional[float] = ..., calls_us: _Optional[float] = ..., python_us: _Optional[float] = ..., annotations_us: _Optional[float] = ..., nothing_us: _Optional[float] = ...) -> None: ...

class NamedTime(_message.Message):
    name: str
    count: int
    self_us: float
    total_us: float
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., self_us: _Optional[float] = ..., total_us: _Optional[float] = ...) -> None: ...

class JobReport(_message.Message):
    schema_version: int
    generator: str
    id: str
    run: str
    span: str
    world_size: int
    parallelism: str
    ranks: _containers.RepeatedCompositeFieldContainer[JobRank]
    missing_ranks: _containers.RepeatedScalarFieldContainer[int]
    missing: int
    clocks: Clocks
    collectives: JobCollectives
    slowdown: Slowdown
    verdict: Verdict
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    unchecked: _containers.RepeatedCompositeFieldContainer[Unchecked]
    clear: _containers.RepeatedCompositeFieldContainer[Clear]
    notes: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    steps: _containers.RepeatedCompositeFieldContainer[JobStep]
    timeline: RankTimeline
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    pipeline: Pipeline
    step_time: StepTime
    def __init__(self, schema_version: _Optional[int] = ..., generator: _Optional[str] = ..., id: _Optional[str] = ..., run: _Optional[str] = ..., span: _Optional[str] = ..., world_size: _Optional[int] = ..., parallelism: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[JobRank, _Mapping[str, object]]]] = ..., missing_ranks: _Optional[_Iterable[int]] = ..., missing: _Optional[int] = ..., clocks: _Optional[_Union[Clocks, _Mapping[str, object]]] = ..., collectives: _Optional[_Union[JobCollectives, _Mapping[str, object]]] = ..., slowdown: _Optional[_Union[Slowdown, _Mapping[str, object]]] = ..., verdict: _Optional[_Union[Verdict, _Mapping[str, object]]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping[str, object]]]] = ..., unchecked: _Optional[_Iterable[_Union[Unchecked, _Mapping[str, object]]]] = ..., clear: _Optional[_Iterable[_Union[Clear, _Mapping[str, object]]]] = ..., notes: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping[str, object]]]] = ..., steps: _Optional[_Iterable[_Union[JobStep, _Mapping[str, object]]]] = ..., timeline: _Optional[_Union[RankTimeline, _Mapping[str, object]]] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping[str, object]]]] = ..., pipeline: _Optional[_Union[Pipeline, _Mapping[str, object]]] = ..., step_time: _Optional[_Union[StepTime, _Mapping[str, object]]] = ...) -> None: ...

class Pipeline(_message.Message):
    schedule: str
    named: bool
    stages: int
    micro_batches: int
    stages_per_rank: int
    bubble_share: float
    ideal_share: float
    def __init__(self, schedule: _Optional[str] = ..., named: bool = ..., stages: _Optional[int] = ..., micro_batches: _Optional[int] = ..., stages_per_rank: _Optional[int] = ..., bubble_share: _Optional[float] = ..., ideal_share: _Optional[float] = ...) -> None: ...

class RankTimeline(_message.Message):
    parts: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    lanes: _containers.RepeatedCompositeFieldContainer[RankLane]
    left_out: int
    merged: bool
    def __init__(self, parts: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., lanes: _Optional[_Iterable[_Union[RankLane, _Mapping[str, object]]]] = ..., left_out: _Optional[int] = ..., merged: bool = ...) -> None: ...

class RankLane(_message.Message):
    at: int
    aligned: bool
    start_us: float
    end_us: _containers.RepeatedScalarFieldContainer[float]
    parts: _containers.RepeatedScalarFieldContainer[int]
    part: _containers.RepeatedScalarFieldContainer[int]
    part_us: _containers.RepeatedScalarFieldContainer[float]
    collectives: LaneCollectives
    def __init__(self, at: _Optional[int] = ..., aligned: bool = ..., start_us: _Optional[float] = ..., end_us: _Optional[_Iterable[float]] = ..., parts: _Optional[_Iterable[int]] = ..., part: _Optional[_Iterable[int]] = ..., part_us: _Optional[_Iterable[float]] = ..., collectives: _Optional[_Union[LaneCollectives, _Mapping[str, object]]] = ...) -> None: ...

class LaneCollectives(_message.Message):
    start_us: _containers.RepeatedScalarFieldContainer[float]
    end_us: _containers.RepeatedScalarFieldContainer[float]
    waiting_us: _containers.RepeatedScalarFieldContainer[float]
    transfer_us: _containers.RepeatedScalarFieldContainer[float]
    waited_for_us: _containers.RepeatedScalarFieldContainer[float]
    count: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start_us: _Optional[_Iterable[float]] = ..., end_us: _Optional[_Iterable[float]] = ..., waiting_us: _Optional[_Iterable[float]] = ..., transfer_us: _Optional[_Iterable[float]] = ..., waited_for_us: _Optional[_Iterable[float]] = ..., count: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ...) -> None: ...

class JobRank(_message.Message):
    rank: int
    worker: str
    host: str
    id: str
    step_us: float
    busy_us: float
    waiting_us: float
    transfer_us: float
    exposed_communication_us: float
    clock_offset_us: float
    last_in: int
    window_us: float
    computing_us: float
    copying_us: float
    communicating_us: float
    idle_by_cause: _containers.RepeatedCompositeFieldContainer[CauseTime]
    limiter: Verdict.Limiter
    device_name: str
    start_us: float
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, rank: _Optional[int] = ..., worker: _Optional[str] = ..., host: _Optional[str] = ..., id: _Optional[str] = ..., step_us: _Optional[float] = ..., busy_us: _Optional[float] = ..., waiting_us: _Optional[float] = ..., transfer_us: _Optional[float] = ..., exposed_communication_us: _Optional[float] = ..., clock_offset_us: _Optional[float] = ..., last_in: _Optional[int] = ..., window_us: _Optional[float] = ..., computing_us: _Optional[float] = ..., copying_us: _Optional[float] = ..., communicating_us: _Optional[float] = ..., idle_by_cause: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., limiter: _Optional[_Union[Verdict.Limiter, str]] = ..., device_name: _Optional[str] = ..., start_us: _Optional[float] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping[str, object]]]] = ...) -> None: ...

class Clocks(_message.Message):
    class Basis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        NONE: _ClassVar[Clocks.Basis]
        ONE_HOST: _ClassVar[Clocks.Basis]
        COLLECTIVES: _ClassVar[Clocks.Basis]
    NONE: Clocks.Basis
    ONE_HOST: Clocks.Basis
    COLLECTIVES: Clocks.Basis
    basis: Clocks.Basis
    residual_us: float
    def __init__(self, basis: _Optional[_Union[Clocks.Basis, str]] = ..., residual_us: _Optional[float] = ...) -> None: ...

class JobCollectives(_message.Message):
    matched: int
    unmatched: int
    waiting_us: float
    transfer_us: float
    worst: _containers.RepeatedCompositeFieldContainer[JobCollective]
    def __init__(self, matched: _Optional[int] = ..., unmatched: _Optional[int] = ..., waiting_us: _Optional[float] = ..., transfer_us: _Optional[float] = ..., worst: _Optional[_Iterable[_Union[JobCollective, _Mapping[str, object]]]] = ...) -> None: ...

class JobCollective(_message.Message):
    class WaitingUsEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    index: int
    group: str
    kind: str
    name: str
    annotation: str
    bytes: float
    skew_us: float
    transfer_us: float
    last_rank: int
    first_rank: int
    waiting_us: _containers.ScalarMap[str, float]
    start_us: float
    end_us: float
    why: str
    why_us: float
    place: Place
    def __init__(self, index: _Optional[int] = ..., group: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., annotation: _Optional[str] = ..., bytes: _Optional[float] = ..., skew_us: _Optional[float] = ..., transfer_us: _Optional[float] = ..., last_rank: _Optional[int] = ..., first_rank: _Optional[int] = ..., waiting_us: _Optional[_Mapping[str, float]] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., why: _Optional[str] = ..., why_us: _Optional[float] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ...) -> None: ...

class Slowdown(_message.Message):
    class ByRankEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ByKindEntry(_message.Message):
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    s: float
    low: float
    high: float
    by_rank: _containers.ScalarMap[str, float]
    by_kind: _containers.ScalarMap[str, float]
    basis: str
    error_share: float
    step_us: float
    ideal_step_us: float
    def __init__(self, s: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., by_rank: _Optional[_Mapping[str, float]] = ..., by_kind: _Optional[_Mapping[str, float]] = ..., basis: _Optional[str] = ..., error_share: _Optional[float] = ..., step_us: _Optional[float] = ..., ideal_step_us: _Optional[float] = ...) -> None: ...

class JobStep(_message.Message):
    name: str
    start_us: float
    duration_us: float
    last_rank: int
    rank_us: _containers.RepeatedScalarFieldContainer[float]
    rank_waiting_us: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., start_us: _Optional[float] = ..., duration_us: _Optional[float] = ..., last_rank: _Optional[int] = ..., rank_us: _Optional[_Iterable[float]] = ..., rank_waiting_us: _Optional[_Iterable[float]] = ...) -> None: ...

class History(_message.Message):
    schema_version: int
    run: str
    points: _containers.RepeatedCompositeFieldContainer[HistoryPoint]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    drifts: _containers.RepeatedCompositeFieldContainer[Drift]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schema_version: _Optional[int] = ..., run: _Optional[str] = ..., points: _Optional[_Iterable[_Union[HistoryPoint, _Mapping[str, object]]]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping[str, object]]]] = ..., drifts: _Optional[_Iterable[_Union[Drift, _Mapping[str, object]]]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping[str, object]]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class HistoryPoint(_message.Message):
    id: str
    worker: str
    span: str
    time_s: float
    rank: int
    step_us: float
    low_step_us: float
    high_step_us: float
    steps: int
    busy_share: float
    shares: _containers.RepeatedCompositeFieldContainer[CauseTime]
    floor_bytes: float
    peak_bytes: float
    limiter: Verdict.Limiter
    rules: _containers.RepeatedScalarFieldContainer[str]
    saving_us: float
    title: str
    device_name: str
    record: bool
    def __init__(self, id: _Optional[str] = ..., worker: _Optional[str] = ..., span: _Optional[str] = ..., time_s: _Optional[float] = ..., rank: _Optional[int] = ..., step_us: _Optional[float] = ..., low_step_us: _Optional[float] = ..., high_step_us: _Optional[float] = ..., steps: _Optional[int] = ..., busy_share: _Optional[float] = ..., shares: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., floor_bytes: _Optional[float] = ..., peak_bytes: _Optional[float] = ..., limiter: _Optional[_Union[Verdict.Limiter, str]] = ..., rules: _Optional[_Iterable[str]] = ..., saving_us: _Optional[float] = ..., title: _Optional[str] = ..., device_name: _Optional[str] = ..., record: bool = ...) -> None: ...

class Change(_message.Message):
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        step: _ClassVar[Change.What]
        busy: _ClassVar[Change.What]
        memory: _ClassVar[Change.What]
        part: _ClassVar[Change.What]
    step: Change.What
    busy: Change.What
    memory: Change.What
    part: Change.What
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        us: _ClassVar[Change.Unit]
        share: _ClassVar[Change.Unit]
        bytes: _ClassVar[Change.Unit]
    us: Change.Unit
    share: Change.Unit
    bytes: Change.Unit
    point: int
    what: Change.What
    before: float
    after: float
    unit: Change.Unit
    sentence: str
    causes: _containers.RepeatedCompositeFieldContainer[CauseTime]
    gradual: bool
    def __init__(self, point: _Optional[int] = ..., what: _Optional[_Union[Change.What, str]] = ..., before: _Optional[float] = ..., after: _Optional[float] = ..., unit: _Optional[_Union[Change.Unit, str]] = ..., sentence: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., gradual: bool = ...) -> None: ...

class Drift(_message.Message):
    device: str
    bytes_per_hour: float
    low_bytes_per_hour: float
    high_bytes_per_hour: float
    hours: float
    total_bytes: float
    hours_until_full: float
    sentence: str
    sites: _containers.RepeatedCompositeFieldContainer[MemorySite]
    points: int
    bytes_per_step: float
    def __init__(self, device: _Optional[str] = ..., bytes_per_hour: _Optional[float] = ..., low_bytes_per_hour: _Optional[float] = ..., high_bytes_per_hour: _Optional[float] = ..., hours: _Optional[float] = ..., total_bytes: _Optional[float] = ..., hours_until_full: _Optional[float] = ..., sentence: _Optional[str] = ..., sites: _Optional[_Iterable[_Union[MemorySite, _Mapping[str, object]]]] = ..., points: _Optional[int] = ..., bytes_per_step: _Optional[float] = ...) -> None: ...

class Comparison(_message.Message):
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        CANNOT_TELL: _ClassVar[Comparison.Verdict]
        FASTER: _ClassVar[Comparison.Verdict]
        SLOWER: _ClassVar[Comparison.Verdict]
        SAME: _ClassVar[Comparison.Verdict]
    CANNOT_TELL: Comparison.Verdict
    FASTER: Comparison.Verdict
    SLOWER: Comparison.Verdict
    SAME: Comparison.Verdict
    base: str
    candidate: str
    step_us: StepDifference
    verdict: Comparison.Verdict
    sentence: str
    causes: _containers.RepeatedCompositeFieldContainer[CauseDifference]
    operators: _containers.RepeatedCompositeFieldContainer[OperatorDifference]
    kernels: _containers.RepeatedCompositeFieldContainer[OperatorDifference]
    findings: FindingsDifference
    verified: _containers.RepeatedCompositeFieldContainer[Verified]
    notes: _containers.RepeatedScalarFieldContainer[str]
    memory: _containers.RepeatedCompositeFieldContainer[MemoryDifference]
    same_within_share: float
    mean_step_us: StepDifference
    launches: CountDifference
    base_id: str
    candidate_id: str
    mfu: MfuDifference
    modules: _containers.RepeatedCompositeFieldContainer[OperatorDifference]
    held: _containers.RepeatedCompositeFieldContainer[HeldDifference]
    def __init__(self, base: _Optional[str] = ..., candidate: _Optional[str] = ..., step_us: _Optional[_Union[StepDifference, _Mapping[str, object]]] = ..., verdict: _Optional[_Union[Comparison.Verdict, str]] = ..., sentence: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[CauseDifference, _Mapping[str, object]]]] = ..., operators: _Optional[_Iterable[_Union[OperatorDifference, _Mapping[str, object]]]] = ..., kernels: _Optional[_Iterable[_Union[OperatorDifference, _Mapping[str, object]]]] = ..., findings: _Optional[_Union[FindingsDifference, _Mapping[str, object]]] = ..., verified: _Optional[_Iterable[_Union[Verified, _Mapping[str, object]]]] = ..., notes: _Optional[_Iterable[str]] = ..., memory: _Optional[_Iterable[_Union[MemoryDifference, _Mapping[str, object]]]] = ..., same_within_share: _Optional[float] = ..., mean_step_us: _Optional[_Union[StepDifference, _Mapping[str, object]]] = ..., launches: _Optional[_Union[CountDifference, _Mapping[str, object]]] = ..., base_id: _Optional[str] = ..., candidate_id: _Optional[str] = ..., mfu: _Optional[_Union[MfuDifference, _Mapping[str, object]]] = ..., modules: _Optional[_Iterable[_Union[OperatorDifference, _Mapping[str, object]]]] = ..., held: _Optional[_Iterable[_Union[HeldDifference, _Mapping[str, object]]]] = ...) -> None: ...

class HeldDifference(_message.Message):
    device: str
    kind: MemoryKind.Kind
    allocator: str
    place: Place
    base_bytes: float
    candidate_bytes: float
    base_count: int
    candidate_count: int
    base_place: Place
    def __init__(self, device: _Optional[str] = ..., kind: _Optional[_Union[MemoryKind.Kind, str]] = ..., allocator: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ..., base_bytes: _Optional[float] = ..., candidate_bytes: _Optional[float] = ..., base_count: _Optional[int] = ..., candidate_count: _Optional[int] = ..., base_place: _Optional[_Union[Place, _Mapping[str, object]]] = ...) -> None: ...

class MfuDifference(_message.Message):
    base: float
    candidate: float
    base_of: str
    candidate_of: str
    def __init__(self, base: _Optional[float] = ..., candidate: _Optional[float] = ..., base_of: _Optional[str] = ..., candidate_of: _Optional[str] = ...) -> None: ...

class StepDifference(_message.Message):
    base: float
    candidate: float
    difference: float
    low: float
    high: float
    base_steps: int
    candidate_steps: int
    def __init__(self, base: _Optional[float] = ..., candidate: _Optional[float] = ..., difference: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., base_steps: _Optional[int] = ..., candidate_steps: _Optional[int] = ...) -> None: ...

class CountDifference(_message.Message):
    base: float
    candidate: float
    def __init__(self, base: _Optional[float] = ..., candidate: _Optional[float] = ...) -> None: ...

class CauseDifference(_message.Message):
    cause: CauseTime.Cause
    base_us: float
    candidate_us: float
    def __init__(self, cause: _Optional[_Union[CauseTime.Cause, str]] = ..., base_us: _Optional[float] = ..., candidate_us: _Optional[float] = ...) -> None: ...

class OperatorDifference(_message.Message):
    name: str
    candidate_name: str
    base_us: float
    candidate_us: float
    base_count: float
    candidate_count: float
    path: str
    family: str
    def __init__(self, name: _Optional[str] = ..., candidate_name: _Optional[str] = ..., base_us: _Optional[float] = ..., candidate_us: _Optional[float] = ..., base_count: _Optional[float] = ..., candidate_count: _Optional[float] = ..., path: _Optional[str] = ..., family: _Optional[str] = ...) -> None: ...

class MemoryDifference(_message.Message):
    device: str
    what: str
    base_bytes: float
    candidate_bytes: float
    def __init__(self, device: _Optional[str] = ..., what: _Optional[str] = ..., base_bytes: _Optional[float] = ..., candidate_bytes: _Optional[float] = ...) -> None: ...

class FindingsDifference(_message.Message):
    gone: _containers.RepeatedCompositeFieldContainer[Finding]
    new: _containers.RepeatedCompositeFieldContainer[Finding]
    changed: _containers.RepeatedCompositeFieldContainer[FindingChange]
    def __init__(self, gone: _Optional[_Iterable[_Union[Finding, _Mapping[str, object]]]] = ..., new: _Optional[_Iterable[_Union[Finding, _Mapping[str, object]]]] = ..., changed: _Optional[_Iterable[_Union[FindingChange, _Mapping[str, object]]]] = ...) -> None: ...

class FindingChange(_message.Message):
    base: Finding
    candidate: Finding
    def __init__(self, base: _Optional[_Union[Finding, _Mapping[str, object]]] = ..., candidate: _Optional[_Union[Finding, _Mapping[str, object]]] = ...) -> None: ...

class Verified(_message.Message):
    class Became(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        UNKNOWN: _ClassVar[Verified.Became]
        GONE: _ClassVar[Verified.Became]
        LESS: _ClassVar[Verified.Became]
        KEPT: _ClassVar[Verified.Became]
    UNKNOWN: Verified.Became
    GONE: Verified.Became
    LESS: Verified.Became
    KEPT: Verified.Became
    class Promise(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        CANNOT_TELL: _ClassVar[Verified.Promise]
        INSIDE: _ClassVar[Verified.Promise]
        BELOW: _ClassVar[Verified.Promise]
        ABOVE: _ClassVar[Verified.Promise]
        NONE: _ClassVar[Verified.Promise]
    CANNOT_TELL: Verified.Promise
    INSIDE: Verified.Promise
    BELOW: Verified.Promise
    ABOVE: Verified.Promise
    NONE: Verified.Promise
    rule: str
    name: str
    title: str
    place: str
    became: Verified.Became
    cost_us: float
    left_us: float
    low_us: float
    high_us: float
    real_us: float
    real_low_us: float
    real_high_us: float
    others_us: float
    promise: Verified.Promise
    sentence: str
    severity: Finding.Severity
    likely_us: float
    def __init__(self, rule: _Optional[str] = ..., name: _Optional[str] = ..., title: _Optional[str] = ..., place: _Optional[str] = ..., became: _Optional[_Union[Verified.Became, str]] = ..., cost_us: _Optional[float] = ..., left_us: _Optional[float] = ..., low_us: _Optional[float] = ..., high_us: _Optional[float] = ..., real_us: _Optional[float] = ..., real_low_us: _Optional[float] = ..., real_high_us: _Optional[float] = ..., others_us: _Optional[float] = ..., promise: _Optional[_Union[Verified.Promise, str]] = ..., sentence: _Optional[str] = ..., severity: _Optional[_Union[Finding.Severity, str]] = ..., likely_us: _Optional[float] = ...) -> None: ...

class HangReport(_message.Message):
    class Why(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        CANNOT_TELL: _ClassVar[HangReport.Why]
        NO_HANG: _ClassVar[HangReport.Why]
        NOT_CALLED: _ClassVar[HangReport.Why]
        MISMATCH: _ClassVar[HangReport.Why]
        CYCLE: _ClassVar[HangReport.Why]
        NOT_BEGUN: _ClassVar[HangReport.Why]
        TRANSFER: _ClassVar[HangReport.Why]
        NO_DUMP: _ClassVar[HangReport.Why]
        EMPTY: _ClassVar[HangReport.Why]
    CANNOT_TELL: HangReport.Why
    NO_HANG: HangReport.Why
    NOT_CALLED: HangReport.Why
    MISMATCH: HangReport.Why
    CYCLE: HangReport.Why
    NOT_BEGUN: HangReport.Why
    TRANSFER: HangReport.Why
    NO_DUMP: HangReport.Why
    EMPTY: HangReport.Why
    why: HangReport.Why
    sentence: str
    advice: str
    culprits: _containers.RepeatedScalarFieldContainer[int]
    ranks: _containers.RepeatedCompositeFieldContainer[HangingRanks]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, why: _Optional[_Union[HangReport.Why, str]] = ..., sentence: _Optional[str] = ..., advice: _Optional[str] = ..., culprits: _Optional[_Iterable[int]] = ..., ranks: _Optional[_Iterable[_Union[HangingRanks, _Mapping[str, object]]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class HangingRanks(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        ENDED: _ClassVar[HangingRanks.State]
        WAITS: _ClassVar[HangingRanks.State]
        QUEUED: _ClassVar[HangingRanks.State]
        NO_DUMP: _ClassVar[HangingRanks.State]
        EMPTY: _ClassVar[HangingRanks.State]
    ENDED: HangingRanks.State
    WAITS: HangingRanks.State
    QUEUED: HangingRanks.State
    NO_DUMP: HangingRanks.State
    EMPTY: HangingRanks.State
    ranks: _containers.RepeatedScalarFieldContainer[int]
    state: HangingRanks.State
    operation: str
    sequence: int
    group: str
    place: Place
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    ranks_text: str
    waits_for_text: str
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[HangingRanks.State, str]] = ..., operation: _Optional[str] = ..., sequence: _Optional[int] = ..., group: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ..., waits_for: _Optional[_Iterable[int]] = ..., ranks_text: _Optional[str] = ..., waits_for_text: _Optional[str] = ...) -> None: ...

class ClockReport(_message.Message):
    sentence: str
    ranks: _containers.RepeatedCompositeFieldContainer[ClockRank]
    recordings: _containers.RepeatedCompositeFieldContainer[ClockRecording]
    notes: _containers.RepeatedScalarFieldContainer[str]
    drifts: bool
    def __init__(self, sentence: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[ClockRank, _Mapping[str, object]]]] = ..., recordings: _Optional[_Iterable[_Union[ClockRecording, _Mapping[str, object]]]] = ..., notes: _Optional[_Iterable[str]] = ..., drifts: bool = ...) -> None: ...

class ClockRank(_message.Message):
    rank: int
    steps: float
    last_step: float
    step_us: float
    now_us: float
    phases: _containers.RepeatedCompositeFieldContainer[ClockPhase]
    drift: str
    since: float
    def __init__(self, rank: _Optional[int] = ..., steps: _Optional[float] = ..., last_step: _Optional[float] = ..., step_us: _Optional[float] = ..., now_us: _Optional[float] = ..., phases: _Optional[_Iterable[_Union[ClockPhase, _Mapping[str, object]]]] = ..., drift: _Optional[str] = ..., since: _Optional[float] = ...) -> None: ...

class ClockPhase(_message.Message):
    name: str
    us: float
    share: float
    def __init__(self, name: _Optional[str] = ..., us: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class ClockRecording(_message.Message):
    rank: int
    step: float
    why: str
    worker: str
    span: str
    time_s: float
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[float] = ..., why: _Optional[str] = ..., worker: _Optional[str] = ..., span: _Optional[str] = ..., time_s: _Optional[float] = ...) -> None: ...

class ClockSlice(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    rank: int
    first_step: float
    last_step: float
    step: _containers.RepeatedScalarFieldContainer[float]
    end_step: float
    steps: _containers.RepeatedScalarFieldContainer[float]
    low_us: _containers.RepeatedScalarFieldContainer[float]
    median_us: _containers.RepeatedScalarFieldContainer[float]
    high_us: _containers.RepeatedScalarFieldContainer[float]
    mean_us: _containers.RepeatedScalarFieldContainer[float]
    phases: _containers.RepeatedCompositeFieldContainer[ClockCurve]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., rank: _Optional[int] = ..., first_step: _Optional[float] = ..., last_step: _Optional[float] = ..., step: _Optional[_Iterable[float]] = ..., end_step: _Optional[float] = ..., steps: _Optional[_Iterable[float]] = ..., low_us: _Optional[_Iterable[float]] = ..., median_us: _Optional[_Iterable[float]] = ..., high_us: _Optional[_Iterable[float]] = ..., mean_us: _Optional[_Iterable[float]] = ..., phases: _Optional[_Iterable[_Union[ClockCurve, _Mapping[str, object]]]] = ...) -> None: ...

class ClockCurve(_message.Message):
    name: str
    us: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., us: _Optional[_Iterable[float]] = ...) -> None: ...

class RunRow(_message.Message):
    id: str
    run: str
    kind: TraceInfo.Kind
    worker: str
    ranks: int
    recordings: int
    time_s: float
    step_us: float
    low_step_us: float
    high_step_us: float
    busy_share: float
    account: _containers.RepeatedCompositeFieldContainer[CauseTime]
    limiter: Verdict.Limiter
    sentence: str
    first_rule: str
    first_title: str
    saving_share: float
    memory_share: float
    change: str
    state: TraceEntry.State
    error: Problem
    trace_id: str
    severity: int
    low_saving_share: float
    growth_bytes_per_step: float
    work: _containers.RepeatedScalarFieldContainer[int]
    unprofiled_step_us: float
    why: str
    def __init__(self, id: _Optional[str] = ..., run: _Optional[str] = ..., kind: _Optional[_Union[TraceInfo.Kind, str]] = ..., worker: _Optional[str] = ..., ranks: _Optional[int] = ..., recordings: _Optional[int] = ..., time_s: _Optional[float] = ..., step_us: _Optional[float] = ..., low_step_us: _Optional[float] = ..., high_step_us: _Optional[float] = ..., busy_share: _Optional[float] = ..., account: _Optional[_Iterable[_Union[CauseTime, _Mapping[str, object]]]] = ..., limiter: _Optional[_Union[Verdict.Limiter, str]] = ..., sentence: _Optional[str] = ..., first_rule: _Optional[str] = ..., first_title: _Optional[str] = ..., saving_share: _Optional[float] = ..., memory_share: _Optional[float] = ..., change: _Optional[str] = ..., state: _Optional[_Union[TraceEntry.State, str]] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., trace_id: _Optional[str] = ..., severity: _Optional[int] = ..., low_saving_share: _Optional[float] = ..., growth_bytes_per_step: _Optional[float] = ..., work: _Optional[_Iterable[int]] = ..., unprofiled_step_us: _Optional[float] = ..., why: _Optional[str] = ...) -> None: ...

class RunTable(_message.Message):
    rows: _containers.RepeatedCompositeFieldContainer[RunRow]
    generation: int
    scanned: bool
    total: int
    unchanged: bool
    removed: _containers.RepeatedScalarFieldContainer[str]
    whole: bool
    more: bool
    folders: bool
    def __init__(self, rows: _Optional[_Iterable[_Union[RunRow, _Mapping[str, object]]]] = ..., generation: _Optional[int] = ..., scanned: bool = ..., total: _Optional[int] = ..., unchanged: bool = ..., removed: _Optional[_Iterable[str]] = ..., whole: bool = ..., more: bool = ..., folders: bool = ...) -> None: ...

class OperatorTable(_message.Message):
    class Group(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        operator: _ClassVar[OperatorTable.Group]
        shapes: _ClassVar[OperatorTable.Group]
        stack: _ClassVar[OperatorTable.Group]
        module: _ClassVar[OperatorTable.Group]
    operator: OperatorTable.Group
    shapes: OperatorTable.Group
    stack: OperatorTable.Group
    module: OperatorTable.Group
    state: ReportState.State
    progress: float
    error: Problem
    group: OperatorTable.Group
    kind: OperatorRow.Kind
    rows: _containers.RepeatedCompositeFieldContainer[OperatorRow]
    total_rows: int
    rest: OperatorRow
    all: OperatorRow
    has_shapes: bool
    has_stacks: bool
    has_modules: bool
    has_gpu: bool
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., group: _Optional[_Union[OperatorTable.Group, str]] = ..., kind: _Optional[_Union[OperatorRow.Kind, str]] = ..., rows: _Optional[_Iterable[_Union[OperatorRow, _Mapping[str, object]]]] = ..., total_rows: _Optional[int] = ..., rest: _Optional[_Union[OperatorRow, _Mapping[str, object]]] = ..., all: _Optional[_Union[OperatorRow, _Mapping[str, object]]] = ..., has_shapes: bool = ..., has_stacks: bool = ..., has_modules: bool = ..., has_gpu: bool = ...) -> None: ...

class OperatorRow(_message.Message):
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        operator: _ClassVar[OperatorRow.Kind]
        range: _ClassVar[OperatorRow.Kind]
        call: _ClassVar[OperatorRow.Kind]
        python: _ClassVar[OperatorRow.Kind]
    operator: OperatorRow.Kind
    range: OperatorRow.Kind
    call: OperatorRow.Kind
    python: OperatorRow.Kind
    key: float
    name: str
    shapes: str
    module: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    calls: float
    host_self_us: float
    host_total_us: float
    gpu_self_us: float
    gpu_total_us: float
    tensor_core_us: float
    teraflops: float
    terabytes: float
    reached: float
    def __init__(self, key: _Optional[float] = ..., name: _Optional[str] = ..., shapes: _Optional[str] = ..., module: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., calls: _Optional[float] = ..., host_self_us: _Optional[float] = ..., host_total_us: _Optional[float] = ..., gpu_self_us: _Optional[float] = ..., gpu_total_us: _Optional[float] = ..., tensor_core_us: _Optional[float] = ..., teraflops: _Optional[float] = ..., terabytes: _Optional[float] = ..., reached: _Optional[float] = ...) -> None: ...

class KernelTable(_message.Message):
    class Group(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        kernel: _ClassVar[KernelTable.Group]
        operator: _ClassVar[KernelTable.Group]
    kernel: KernelTable.Group
    operator: KernelTable.Group
    state: ReportState.State
    progress: float
    error: Problem
    group: KernelTable.Group
    rows: _containers.RepeatedCompositeFieldContainer[KernelRow]
    total_rows: int
    rest: KernelRow
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., group: _Optional[_Union[KernelTable.Group, str]] = ..., rows: _Optional[_Iterable[_Union[KernelRow, _Mapping[str, object]]]] = ..., total_rows: _Optional[int] = ..., rest: _Optional[_Union[KernelRow, _Mapping[str, object]]] = ...) -> None: ...

class KernelRow(_message.Message):
    class Family(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        other: _ClassVar[KernelRow.Family]
        gemm: _ClassVar[KernelRow.Family]
        convolution: _ClassVar[KernelRow.Family]
        attention: _ClassVar[KernelRow.Family]
        elementwise: _ClassVar[KernelRow.Family]
        reduction: _ClassVar[KernelRow.Family]
        normalization: _ClassVar[KernelRow.Family]
        softmax: _ClassVar[KernelRow.Family]
        copy: _ClassVar[KernelRow.Family]
        collective: _ClassVar[KernelRow.Family]
    other: KernelRow.Family
    gemm: KernelRow.Family
    convolution: KernelRow.Family
    attention: KernelRow.Family
    elementwise: KernelRow.Family
    reduction: KernelRow.Family
    normalization: KernelRow.Family
    softmax: KernelRow.Family
    copy: KernelRow.Family
    collective: KernelRow.Family
    class Arithmetic(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        unknown: _ClassVar[KernelRow.Arithmetic]
        tensor_cores: _ClassVar[KernelRow.Arithmetic]
        fp32_cores: _ClassVar[KernelRow.Arithmetic]
        half_on_fp32_cores: _ClassVar[KernelRow.Arithmetic]
        fp64: _ClassVar[KernelRow.Arithmetic]
    unknown: KernelRow.Arithmetic
    tensor_cores: KernelRow.Arithmetic
    fp32_cores: KernelRow.Arithmetic
    half_on_fp32_cores: KernelRow.Arithmetic
    fp64: KernelRow.Arithmetic
    key: float
    name: str
    family: KernelRow.Family
    arithmetic: KernelRow.Arithmetic
    operators: _containers.RepeatedScalarFieldContainer[str]
    more_operators: int
    count: float
    total_us: float
    mean_us: float
    min_us: float
    max_us: float
    blocks_per_sm: float
    teraflops: float
    terabytes: float
    share: float
    def __init__(self, key: _Optional[float] = ..., name: _Optional[str] = ..., family: _Optional[_Union[KernelRow.Family, str]] = ..., arithmetic: _Optional[_Union[KernelRow.Arithmetic, str]] = ..., operators: _Optional[_Iterable[str]] = ..., more_operators: _Optional[int] = ..., count: _Optional[float] = ..., total_us: _Optional[float] = ..., mean_us: _Optional[float] = ..., min_us: _Optional[float] = ..., max_us: _Optional[float] = ..., blocks_per_sm: _Optional[float] = ..., teraflops: _Optional[float] = ..., terabytes: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class CallDetails(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    stacks: _containers.RepeatedCompositeFieldContainer[CallStack]
    more_stacks: int
    kernels: _containers.RepeatedCompositeFieldContainer[CallPart]
    more_kernels: int
    shapes: _containers.RepeatedCompositeFieldContainer[CallPart]
    more_shapes: int
    longest: _containers.RepeatedCompositeFieldContainer[TimeRange]
    callers: _containers.RepeatedCompositeFieldContainer[CallPart]
    more_callers: int
    callees: _containers.RepeatedCompositeFieldContainer[CallPart]
    more_callees: int
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., stacks: _Optional[_Iterable[_Union[CallStack, _Mapping[str, object]]]] = ..., more_stacks: _Optional[int] = ..., kernels: _Optional[_Iterable[_Union[CallPart, _Mapping[str, object]]]] = ..., more_kernels: _Optional[int] = ..., shapes: _Optional[_Iterable[_Union[CallPart, _Mapping[str, object]]]] = ..., more_shapes: _Optional[int] = ..., longest: _Optional[_Iterable[_Union[TimeRange, _Mapping[str, object]]]] = ..., callers: _Optional[_Iterable[_Union[CallPart, _Mapping[str, object]]]] = ..., more_callers: _Optional[int] = ..., callees: _Optional[_Iterable[_Union[CallPart, _Mapping[str, object]]]] = ..., more_callees: _Optional[int] = ...) -> None: ...

class CallStack(_message.Message):
    frames: _containers.RepeatedCompositeFieldContainer[CallFrame]
    more_frames: int
    forward: bool
    module: str
    calls: float
    host_us: float
    gpu_us: float
    share: float
    node: int
    def __init__(self, frames: _Optional[_Iterable[_Union[CallFrame, _Mapping[str, object]]]] = ..., more_frames: _Optional[int] = ..., forward: bool = ..., module: _Optional[str] = ..., calls: _Optional[float] = ..., host_us: _Optional[float] = ..., gpu_us: _Optional[float] = ..., share: _Optional[float] = ..., node: _Optional[int] = ...) -> None: ...

class CallFrame(_message.Message):
    name: str
    kind: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[int] = ...) -> None: ...

class CallPart(_message.Message):
    name: str
    count: float
    us: float
    def __init__(self, name: _Optional[str] = ..., count: _Optional[float] = ..., us: _Optional[float] = ...) -> None: ...

class CallTree(_message.Message):
    class Weight(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        host: _ClassVar[CallTree.Weight]
        gpu: _ClassVar[CallTree.Weight]
    host: CallTree.Weight
    gpu: CallTree.Weight
    state: ReportState.State
    progress: float
    error: Problem
    weight: CallTree.Weight
    total_us: float
    names: _containers.RepeatedScalarFieldContainer[str]
    node: _containers.RepeatedScalarFieldContainer[int]
    parent: _containers.RepeatedScalarFieldContainer[int]
    name: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    node_us: _containers.RepeatedScalarFieldContainer[float]
    self_us: _containers.RepeatedScalarFieldContainer[float]
    calls: _containers.RepeatedScalarFieldContainer[float]
    left_out: _containers.RepeatedScalarFieldContainer[int]
    left_out_us: _containers.RepeatedScalarFieldContainer[float]
    path: _containers.RepeatedCompositeFieldContainer[CallStep]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., weight: _Optional[_Union[CallTree.Weight, str]] = ..., total_us: _Optional[float] = ..., names: _Optional[_Iterable[str]] = ..., node: _Optional[_Iterable[int]] = ..., parent: _Optional[_Iterable[int]] = ..., name: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ..., node_us: _Optional[_Iterable[float]] = ..., self_us: _Optional[_Iterable[float]] = ..., calls: _Optional[_Iterable[float]] = ..., left_out: _Optional[_Iterable[int]] = ..., left_out_us: _Optional[_Iterable[float]] = ..., path: _Optional[_Iterable[_Union[CallStep, _Mapping[str, object]]]] = ...) -> None: ...

class CallStep(_message.Message):
    name: str
    kind: int
    node: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[int] = ..., node: _Optional[int] = ...) -> None: ...

class RooflinePlot(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    device: int
    device_name: str
    assumed: str
    peaks: _containers.RepeatedCompositeFieldContainer[RooflinePeak]
    bandwidth: float
    points: _containers.RepeatedCompositeFieldContainer[RooflinePoint]
    more_points: int
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., device: _Optional[int] = ..., device_name: _Optional[str] = ..., assumed: _Optional[str] = ..., peaks: _Optional[_Iterable[_Union[RooflinePeak, _Mapping[str, object]]]] = ..., bandwidth: _Optional[float] = ..., points: _Optional[_Iterable[_Union[RooflinePoint, _Mapping[str, object]]]] = ..., more_points: _Optional[int] = ...) -> None: ...

class RooflinePeak(_message.Message):
    name: str
    teraflops: float
    def __init__(self, name: _Optional[str] = ..., teraflops: _Optional[float] = ...) -> None: ...

class RooflinePoint(_message.Message):
    operator: str
    shapes: str
    number: str
    family: KernelRow.Family
    calls: float
    us: float
    operations: float
    bytes: float
    reached: float
    def __init__(self, operator: _Optional[str] = ..., shapes: _Optional[str] = ..., number: _Optional[str] = ..., family: _Optional[_Union[KernelRow.Family, str]] = ..., calls: _Optional[float] = ..., us: _Optional[float] = ..., operations: _Optional[float] = ..., bytes: _Optional[float] = ..., reached: _Optional[float] = ...) -> None: ...

class MemoryState(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    device: int
    live_bytes: float
    allocations: float
    earlier_bytes: float
    unknown_bytes: float
    names: _containers.RepeatedScalarFieldContainer[str]
    node: _containers.RepeatedScalarFieldContainer[int]
    parent: _containers.RepeatedScalarFieldContainer[int]
    name: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    node_bytes: _containers.RepeatedScalarFieldContainer[float]
    count: _containers.RepeatedScalarFieldContainer[float]
    left_out: _containers.RepeatedScalarFieldContainer[int]
    blocks: _containers.RepeatedCompositeFieldContainer[LiveBlock]
    more_blocks: float
    more_blocks_bytes: float
    before_bytes: float
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., device: _Optional[int] = ..., live_bytes: _Optional[float] = ..., allocations: _Optional[float] = ..., earlier_bytes: _Optional[float] = ..., unknown_bytes: _Optional[float] = ..., names: _Optional[_Iterable[str]] = ..., node: _Optional[_Iterable[int]] = ..., parent: _Optional[_Iterable[int]] = ..., name: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ..., node_bytes: _Optional[_Iterable[float]] = ..., count: _Optional[_Iterable[float]] = ..., left_out: _Optional[_Iterable[int]] = ..., blocks: _Optional[_Iterable[_Union[LiveBlock, _Mapping[str, object]]]] = ..., more_blocks: _Optional[float] = ..., more_blocks_bytes: _Optional[float] = ..., before_bytes: _Optional[float] = ...) -> None: ...

class LiveBlock(_message.Message):
    bytes: float
    made_us: float
    freed_us: float
    operator: str
    place: Place
    def __init__(self, bytes: _Optional[float] = ..., made_us: _Optional[float] = ..., freed_us: _Optional[float] = ..., operator: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ...) -> None: ...

class MemoryBands(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    device: int
    start_us: float
    end_us: float
    column_us: _containers.RepeatedScalarFieldContainer[float]
    rest_bytes: _containers.RepeatedScalarFieldContainer[float]
    band_from: _containers.RepeatedScalarFieldContainer[int]
    band_to: _containers.RepeatedScalarFieldContainer[int]
    band_bytes: _containers.RepeatedScalarFieldContainer[float]
    band_made_us: _containers.RepeatedScalarFieldContainer[float]
    band_freed_us: _containers.RepeatedScalarFieldContainer[float]
    band_site: _containers.RepeatedScalarFieldContainer[int]
    band_kind: _containers.RepeatedScalarFieldContainer[int]
    sites: _containers.RepeatedCompositeFieldContainer[BandSite]
    more_bands: float
    kinds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., device: _Optional[int] = ..., start_us: _Optional[float] = ..., end_us: _Optional[float] = ..., column_us: _Optional[_Iterable[float]] = ..., rest_bytes: _Optional[_Iterable[float]] = ..., band_from: _Optional[_Iterable[int]] = ..., band_to: _Optional[_Iterable[int]] = ..., band_bytes: _Optional[_Iterable[float]] = ..., band_made_us: _Optional[_Iterable[float]] = ..., band_freed_us: _Optional[_Iterable[float]] = ..., band_site: _Optional[_Iterable[int]] = ..., band_kind: _Optional[_Iterable[int]] = ..., sites: _Optional[_Iterable[_Union[BandSite, _Mapping[str, object]]]] = ..., more_bands: _Optional[float] = ..., kinds: _Optional[_Iterable[str]] = ...) -> None: ...

class BandSite(_message.Message):
    operator: str
    place: Place
    def __init__(self, operator: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping[str, object]]] = ...) -> None: ...

class SegmentMap(_message.Message):
    state: ReportState.State
    progress: float
    error: Problem
    device: int
    segments: int
    bytes: float
    used_bytes: float
    inactive_bytes: float
    free_bytes: float
    outside_bytes: float
    rows: _containers.RepeatedCompositeFieldContainer[MapSegment]
    box_row: _containers.RepeatedScalarFieldContainer[int]
    box_offset: _containers.RepeatedScalarFieldContainer[float]
    box_bytes: _containers.RepeatedScalarFieldContainer[float]
    box_requested: _containers.RepeatedScalarFieldContainer[float]
    box_count: _containers.RepeatedScalarFieldContainer[int]
    box_made_us: _containers.RepeatedScalarFieldContainer[float]
    box_freed_us: _containers.RepeatedScalarFieldContainer[float]
    box_node: _containers.RepeatedScalarFieldContainer[int]
    node_parent: _containers.RepeatedScalarFieldContainer[int]
    node_name: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[ReportState.State, str]] = ..., progress: _Optional[float] = ..., error: _Optional[_Union[Problem, _Mapping[str, object]]] = ..., device: _Optional[int] = ..., segments: _Optional[int] = ..., bytes: _Optional[float] = ..., used_bytes: _Optional[float] = ..., inactive_bytes: _Optional[float] = ..., free_bytes: _Optional[float] = ..., outside_bytes: _Optional[float] = ..., rows: _Optional[_Iterable[_Union[MapSegment, _Mapping[str, object]]]] = ..., box_row: _Optional[_Iterable[int]] = ..., box_offset: _Optional[_Iterable[float]] = ..., box_bytes: _Optional[_Iterable[float]] = ..., box_requested: _Optional[_Iterable[float]] = ..., box_count: _Optional[_Iterable[int]] = ..., box_made_us: _Optional[_Iterable[float]] = ..., box_freed_us: _Optional[_Iterable[float]] = ..., box_node: _Optional[_Iterable[int]] = ..., node_parent: _Optional[_Iterable[int]] = ..., node_name: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class MapSegment(_message.Message):
    address: str
    bytes: float
    used_bytes: float
    largest_free_bytes: float
    blocks: int
    stream: str
    pool: int
    expandable: bool
    boxed: bool
    def __init__(self, address: _Optional[str] = ..., bytes: _Optional[float] = ..., used_bytes: _Optional[float] = ..., largest_free_bytes: _Optional[float] = ..., blocks: _Optional[int] = ..., stream: _Optional[str] = ..., pool: _Optional[int] = ..., expandable: bool = ..., boxed: bool = ...) -> None: ...
