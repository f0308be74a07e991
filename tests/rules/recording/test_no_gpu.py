from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.doubts import ABOUT_TIME
from tb_gpudiag.rules.recording.no_gpu import RULE
from tb_gpudiag.rules.rule import GpuRule
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import number
from tests.builder import HostThread, TraceBuilder
from tests.builder.forms import BASE_NS, EPOCH_NS
from tests.rules.stage import facts_of, figures, finding, without_gpu
from tests.with_each import with_each


def test_a_cpu_trace_gets_a_hint(tmp_path: Path) -> None:
    facts = facts_of(without_gpu(), tmp_path)
    assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is Severity.INFO


def test_a_recording_of_nothing_says_how_to_record_something(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(TraceBuilder(), tmp_path)))
    assert found.title == "Nothing of the job was recorded"
    assert "prof.step()" in found.fix.text


def test_the_profilers_own_calls_are_nothing_of_the_job(tmp_path: Path) -> None:
    """It asks for the GPUs as it starts, and waits for them as it ends: the job ran in another process."""
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaGetDeviceCount", at=0, us=20)
    main.call("cudaDeviceSynchronize", at=100, us=185_000)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "Nothing of the job was recorded"
    assert "in the process that trains" in found.fix.text
    assert find_verdict(facts).sentence.startswith("Nothing of the job was recorded")


@pytest.mark.parametrize("works", [False, True])
def test_a_block_in_which_nothing_ran_is_not_judged_by_the_profilers_end(works: bool, tmp_path: Path) -> None:
    """With stacks, its frames and its own synchronization are in the file: no job on a GPU."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(3): <module>", at=0, us=1000)
    if works:
        main.frame("train.py(9): step", at=5, us=80)
    main.frame("torch/profiler/profiler.py(476): __exit__", at=100, us=890)
    main.frame("torch/profiler/profiler.py(117): stop_trace", at=110, us=870)
    main.frame("torch/cuda/__init__.py(556): synchronize", at=120, us=850)
    main.frame("<built-in function isinstance>", at=130, us=0)  # in files of whole microseconds
    main.frame("<built-in function _cuda_synchronize>", at=900, us=20)
    main.call("cudaDeviceSynchronize", at=901, us=17)
    facts = facts_of(trace, tmp_path)
    nothing = finding(RULE.check(facts)).title == "Nothing of the job was recorded"
    assert nothing != works
    assert find_verdict(facts).sentence.startswith("Nothing of the job was recorded") == nothing


def test_launches_without_kernels_are_a_warning(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100).call("cudaLaunchKernel", at=10, us=5)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert figures(found)["Launch calls"] == (number(1),)
    skipped = [
        answer.how_to_record
        for rule, answer in run_rules(facts, RULES).unchecked
        if isinstance(rule, GpuRule)
    ]
    assert skipped
    assert all("CUPTI" in how and "driver" in how and "WSL" in how for how in skipped)


def test_counters_of_kernels_are_no_times(tmp_path: Path) -> None:
    """CUPTI's range profiler runs each kernel again and again: no launch is as slow in the job."""
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100_000).call("cudaLaunchKernel", at=10, us=67_000)
    at = (EPOCH_NS - BASE_NS) / 1_000 + 10
    counted = {"name": "gemm", "pid": 0, "tid": 0, "ts": at, "dur": 67_000}
    trace.raw({"ph": "X", "cat": "cuda_profiler_range", "args": {"dram__bytes_read.sum": 1e9}, **counted})
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == "unknown"
    assert "without profiler_metrics" in finding(RULE.check(facts)).fix.text


def test_an_accelerator_that_is_not_read_is_named_and_nothing_is_said_about_time(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.loader(at=0, us=400)
    main.op("aten::mm", at=400, us=600)
    at = (EPOCH_NS - BASE_NS) / 1_000 + 400
    trace.raw(
        {"ph": "X", "cat": "enqueue", "name": "Enqueue@aclnnMm", "pid": 1, "tid": 1, "ts": at, "dur": 5}
    )
    facts = facts_of(trace, tmp_path)
    assert "Ascend NPU" in finding(RULE.check(facts)).title
    assert find_verdict(facts).limiter == "unknown"
    outcome = run_rules(facts, RULES)
    assert not [f for f in outcome.findings if f.rule.family in ABOUT_TIME]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_gradients_on_a_thread_of_their_own_are_those_of_a_device(elsewhere: bool, tmp_path: Path) -> None:
    """Autograd computes those of the CPU on the thread that asks for them."""
    trace = TraceBuilder(devices=())
    main = trace.thread("main")
    main.step(0, at=0, us=1_000)
    backward = trace.thread("autograd") if elsewhere else main
    for n in range(20):
        main.op("aten::mm", at=1 + 20 * n, us=19, sequence=n + 1)
        name = "autograd::engine::evaluate_function: MmBackward0"
        backward.op(name, at=900 - 20 * n, us=19, sequence=n + 1, forward_thread=1)
    facts = facts_of(trace, tmp_path)
    assert facts.gpu_use.certain == elsewhere
    assert (find_verdict(facts).limiter == "unknown") == elsewhere
    assert finding(RULE.check(facts)).title.startswith("The job used a GPU") == elsewhere


Act = Callable[[HostThread], object]

CPU_COPY = {"Concrete Inputs": ["", "15", "", "", "", "False", ""]}
DEVICE_COPY = {"Concrete Inputs": ["", "6", "0", "", "", "False", ""]}


def a_step(main: HostThread) -> None:
    """A step of 1,000 ms, nearly all of it in one operator of the main thread."""
    main.step(0, at=0, us=1_000_000)
    main.op("aten::mm", at=1, us=990_000)


def reads(main: HostThread, *lengths_us: float) -> None:
    for i, us in enumerate(lengths_us):
        main.op("aten::item", at=i * 100_000 + 10, us=us + 2)
        main.op("aten::_local_scalar_dense", at=i * 100_000 + 11, us=us)


def reads_that_copy(main: HostThread) -> None:
    """As Apple's GPUs do it: a read makes a tensor on the CPU and copies into it."""
    reads(main, 40_000, 30_000)
    for i in range(2):
        main.op("aten::empty", at=i * 100_000 + 12, us=1)


def reads_and_copies(main: HostThread) -> None:
    reads(main, 40_000, 30_000)
    copies(main, 2, DEVICE_COPY)


def reads_and_copies_on_the_cpu(main: HostThread) -> None:
    reads_and_copies(main)
    main.alloc(512, at=5, device=None)


def copies(main: HostThread, number: int, settings: dict[str, list[str]]) -> None:
    for i in range(number):
        main.op("aten::_to_copy", at=i * 100 + 1, us=50, shapes=[[8, 8]], types=["float"], more=settings)


USES: dict[str, Act] = {
    "memory of a GPU": lambda main: main.alloc(512, at=5),
    "values that are read in milliseconds, from tensors that went to a device": reads_and_copies,
    "Apple's convolution": lambda main: main.op("aten::_mps_convolution", at=5, us=20),
    "Apple's attention": lambda main: main.op("aten::_scaled_dot_product_attention_math_for_mps", at=5, us=9),
    "cuDNN's convolution": lambda main: main.op("aten::cudnn_convolution", at=5, us=20),
    "a collective of NCCL": lambda main: main.op("nccl:all_reduce", at=5, us=20),
    "torch.cuda.synchronize()": lambda main: main.frame(
        "<built-in function _cuda_synchronize>", at=5, us=20_000
    ),
}

CPU_WORK: dict[str, Act] = {
    "memory of the CPU": lambda main: main.alloc(512, at=5, device=None),
    "values that are read at once": lambda main: reads(main, *[2] * 9),
    "one read that was interrupted": lambda main: reads(main, 8_000, *[2] * 8),
    "casts": lambda main: copies(main, 9, CPU_COPY),
    "copies of tensors, as to('cpu', copy=True) and sparse products make them": lambda main: copies(
        main, 9, DEVICE_COPY
    ),
    "reads and copies where all memory is the CPU's": reads_and_copies_on_the_cpu,
    "what a CPU calls, too": lambda main: main.op("aten::cudnn_is_acceptable", at=5, us=1),
    "oneDNN's convolution": lambda main: main.op("aten::mkldnn_convolution", at=5, us=20),
    "a collective of Gloo": lambda main: main.op("gloo:all_reduce", at=5, us=20),
}


@pytest.mark.parametrize("sign", USES)
def test_a_job_that_used_a_gpu_is_no_job_on_the_cpu(sign: str, tmp_path: Path) -> None:
    """The GPU's side is missing: that leads, and nothing is said to limit the job."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    a_step(main)
    main.loader(at=991_000, us=9_000)
    USES[sign](main)
    facts = facts_of(trace, tmp_path)
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "was not recorded" in verdict.sentence
    first = run_rules(facts, RULES).findings[0]
    assert (first.rule.id, first.severity) == ("GD905", Severity.WARNING)
    assert "record" in first.finding.fix.text.lower()


@with_each("read", [reads_that_copy, lambda main: reads(main, 40_000, 30_000)])
def test_values_that_are_read_in_milliseconds_may_be_a_gpus(read: Act, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    a_step(main)
    read(main)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "unknown"
    assert "not known whether the job used a GPU" in verdict.sentence


@with_each("work", CPU_WORK)
def test_a_job_on_the_cpu_stays_one(work: str, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    a_step(main)
    CPU_WORK[work](main)
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == "compute"
    assert finding(RULE.check(facts)).severity is None


def test_loading_leads_nowhere_if_the_gpu_was_not_recorded(tmp_path: Path) -> None:
    """The main thread may load while the GPU works."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000).loader(at=0, us=900).op("aten::mm", at=900, us=90)
    main.alloc(512, at=5)
    found = run_rules(facts_of(trace, tmp_path), RULES).findings
    assert [f.rule.id for f in found][:2] == ["GD905", "GD101"]
    assert all(f.severity is not Severity.ERROR for f in found)


def test_loading_leads_if_reads_of_the_gpus_values_return_at_once(tmp_path: Path) -> None:
    """Then the host does not wait for the GPU, whatever that does. One read may be of the CPU's memory."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=10_000).loader(at=0, us=6_000).op("aten::mm", at=6_000, us=3_000)
    main.alloc(512, at=5)
    main.op("aten::item", at=9_300, us=45)
    assert find_verdict(facts_of(trace, tmp_path)).limiter == "unknown"
    main.op("aten::item", at=9_500, us=45)
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == "input"
    assert [f.rule.id for f in run_rules(facts, RULES).findings][:2] == ["GD101", "GD905"]


def test_a_gpu_of_unknown_make_may_be_apples(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    a_step(main)
    reads(main, 40_000, 30_000)
    assert "torch.mps.profiler" in finding(RULE.check(facts_of(trace, tmp_path))).fix.text


def test_a_model_that_was_left_on_the_cpu_of_a_machine_with_a_gpu(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=("NVIDIA A100",))
    main = trace.thread()
    a_step(main)
    main.alloc(512, at=5, device=None)
    main.call("cudaDeviceSynchronize", at=999_000, us=9)  # the profiler's own
    facts = facts_of(trace, tmp_path)
    verdict = find_verdict(facts)
    assert verdict.limiter == "compute"
    assert "ran on the CPU: nothing was moved to the machine's GPU (“NVIDIA A100”)" in verdict.sentence
    first = run_rules(facts, RULES).findings[0]
    assert (first.rule.id, first.severity) == ("GD905", Severity.WARNING)
    assert ".to(device)" in first.finding.fix.code


def test_a_listed_gpu_may_have_worked_where_memory_was_not_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=("NVIDIA A100",))
    a_step(trace.thread())
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == "unknown"
    assert (
        "not known whether the job used the machine's GPU (“NVIDIA A100”)" in finding(RULE.check(facts)).title
    )


def test_operators_that_only_a_cpu_runs_show_that_the_job_ran_there(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=("NVIDIA A100",))
    main = trace.thread()
    main.step(0, at=0, us=1_000_000)
    main.op("aten::mkldnn_convolution", at=1, us=900_000)
    facts = facts_of(trace, tmp_path)
    assert "ran on the CPU" in finding(RULE.check(facts)).title
    assert find_verdict(facts).limiter == "compute"


def test_apples_gpu_is_recorded_in_another_way(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    trace.thread().step(0, at=0, us=100).op("aten::mps_convolution_backward", at=10, us=5)
    fix = finding(RULE.check(facts_of(trace, tmp_path))).fix
    assert "torch.mps.profiler" in fix.code
    assert "ProfilerActivity.CUDA" not in fix.text + fix.code


def test_memory_that_is_nearly_full_comes_before_a_gpu_that_was_not_recorded(tmp_path: Path) -> None:
    """What memory shows does not depend on kernels."""
    trace = TraceBuilder(device_bytes=1 << 30)
    main = trace.thread()
    main.step(0, at=0, us=100).call("cudaLaunchKernel", at=10, us=5)
    main.alloc((1 << 30) - (1 << 20), at=20)
    found = run_rules(facts_of(trace, tmp_path), RULES).findings
    assert [f.rule.id for f in found][:2] == ["GD402", "GD905"]


def test_what_the_main_thread_does_is_said_without_the_gpu_too(tmp_path: Path) -> None:
    """80% of a job's time in `normal_` on the CPU is as true without the kernels that it launched."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=100_000).call("cudaLaunchKernel", at=10, us=5)
    main.op("aten::normal_", at=1_000, us=80_000)
    sentence = find_verdict(facts_of(trace, tmp_path)).sentence
    assert "cannot say what limits the job" in sentence
    assert "The main thread was longest in “aten::normal_”: 80.0% of the time." in sentence
