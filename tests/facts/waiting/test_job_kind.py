from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.vocabulary.engines import Server
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import facts_of
from tests.with_each import with_each

Act = Callable[[HostThread], object]


def _job(folder: Path, *acts: Act, operator: str = "aten::mm") -> JobKind:
    trace = TraceBuilder()
    main = trace.thread()
    if operator:
        main.op(operator, at=0, us=10, sequence=3)
    for act in acts:
        act(main)
    return facts_of(trace, folder).job


@with_each(
    "act",
    [
        lambda main: main.annotation("Optimizer.step#AdamW.step", at=20, us=5),
        lambda main: main.annotation("Optimizer.zero_grad#AdamW.zero_grad", at=20, us=5),
        lambda main: main.op("autograd::engine::evaluate_function: MmBackward0", at=20, us=5),
        lambda main: main.op("MmBackward0", at=20, us=5, sequence=3, forward_thread=1),
        lambda main: main.frame("torch/_tensor.py(500): backward", at=20, us=5),
        lambda main: main.launch("void wgrad_alg0_engine<float>", at=20, us=5, runs_at=30, runs_us=5),
    ],
)
def test_a_backward_pass_or_an_optimizer_is_training(act: Act, tmp_path: Path) -> None:
    assert _job(tmp_path, act).training is True


def test_operators_without_them_are_inference(tmp_path: Path) -> None:
    assert _job(tmp_path) == JobKind(training=False, pipeline=False, loader=False, autograd_nodes=0)


def test_a_replayed_graph_may_contain_a_backward_pass(tmp_path: Path) -> None:
    job = _job(tmp_path, lambda main: main.graph_launch([("gemm", 40, 5)], at=20, us=5))
    assert job.training is None


def test_without_operators_it_is_unknown(tmp_path: Path) -> None:
    launch: Act = lambda main: main.launch("gemm", at=20, us=5, runs_at=30, runs_us=5)  # noqa: E731
    assert _job(tmp_path, launch, operator="").training is None


def test_what_feeds_the_job(tmp_path: Path) -> None:
    assert _job(tmp_path / "1", lambda main: main.loader(at=20, us=5)).loader
    frame = "transformers/pipelines/base.py(1120): __call__"
    assert _job(tmp_path / "2", lambda main: main.frame(frame, at=20, us=5)).pipeline


def test_autograd_nodes_are_counted_by_sequence_numbers(tmp_path: Path) -> None:
    def two_more(main: HostThread) -> None:
        main.op("aten::mul", at=20, us=5, sequence=4)
        main.op("aten::add", at=30, us=5, sequence=5)

    assert _job(tmp_path, two_more).autograd_nodes == 2


def _kernel(name: str) -> Act:
    return lambda main: main.launch(name, at=20, us=5, runs_at=30, runs_us=5)


@with_each(
    ("act", "server"),
    [
        (_kernel("void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*)"), Server.VLLM),
        (lambda main: main.annotation("execute_context_0(0)_generation_1(1)", at=20, us=5), Server.VLLM),
        (lambda main: main.annotation("execute_model", at=20, us=5), Server.VLLM),
        (lambda main: main.annotation("step[DECODE bs=16]", at=20, us=5), Server.SGLANG),
        (
            lambda main: main.frame(
                "/src/sglang/python/sglang/srt/managers/scheduler.py(1534): run", at=20, us=5
            ),
            Server.SGLANG,
        ),
        (lambda main: main.frame("text_generation_server/server.py(9): Decode", at=20, us=5), Server.TGI),
        (lambda main: main.annotation("execute_diffusion_1_256x256", at=20, us=5), None),
        (_kernel("void cutlass::device_kernel<cutlass::vllm_biased_integer_s>()"), None),
    ],
)
def test_servers_are_known_by_kernels_annotations_and_frames(
    act: Act, server: Server | None, tmp_path: Path
) -> None:
    assert _job(tmp_path, act).server is server


def test_a_server_that_uses_kernels_of_vllm_is_that_server(tmp_path: Path) -> None:
    frame = "sglang/srt/managers/scheduler.py(1534): run"
    job = _job(
        tmp_path, lambda main: main.frame(frame, at=20, us=5), _kernel("void vllm::rms_norm_kernel<half>")
    )
    assert job.server is Server.SGLANG


def test_a_server_that_replays_graphs_does_not_train(tmp_path: Path) -> None:
    job = _job(
        tmp_path, lambda main: main.graph_launch([("void vllm::moe::topk<float>", 40, 5)], at=20, us=5)
    )
    assert (job.training, job.server) == (False, Server.VLLM)


def test_a_training_with_a_servers_kernels_is_no_server(tmp_path: Path) -> None:
    job = _job(
        tmp_path, _kernel("void vllm::rms_norm_kernel<half>"), _kernel("void wgrad_alg0_engine<float>")
    )
    assert (job.training, job.server) == (True, None)
