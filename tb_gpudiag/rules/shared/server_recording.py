"""How to record an inference server: it starts torch.profiler itself."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Finding, Fix, RuleAnswer, with_findings
from tb_gpudiag.rules.shared.recording_advice import PROFILER_URL, record_again
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.wording.format import sentences
from tb_gpudiag.wording.good_recording import RECORDING, RECORDING_FOR_FIGURES

# A step is what its graph does if the graph launches most of its work. Without graphs, the host launches
# kernels all through the step, and a step before does not hide that.
MOSTLY_REPLAYED = levels.HALF

_MORE_STEPS = "Record more steps, once the server is warm."

_ABOUT_STEPS = ("schedule(", "wait and warmup", "prof.step()")
"""What advice about torch.profiler's schedule contains."""

_RECIPES = {
    Server.VLLM: """\
# vLLM (0.13 or later) records each of its workers. Options are on if they are true:
#   vllm serve MODEL --profiler-config '{"profiler": "torch", "torch_profiler_dir": "/log",
#     "torch_profiler_with_stack": true, "torch_profiler_record_shapes": true,
#     "torch_profiler_with_memory": true}'
#   vllm bench serve --model MODEL --num-prompts 8 --profile     # or POST /start_profile, /stop_profile""",
    Server.SGLANG: """\
# SGLang records this many steps. Options are on if they are true:
#   SGLANG_TORCH_PROFILER_DIR=/log python -m sglang.launch_server --model-path MODEL
#   curl http://localhost:30000/start_profile -H 'Content-Type: application/json' \\
#     -d '{"num_steps": 10, "with_stack": true, "record_shapes": true}'""",
}

_BENCHMARKS = {
    Server.VLLM: "vllm bench serve --model MODEL",
    Server.SGLANG: "python -m sglang.bench_serving --backend sglang",
}

_RECIPE = "# Start the server's profiler once it is warm, and stop it after several steps."

_URLS = {
    Server.VLLM: "https://docs.vllm.ai/en/stable/contributing/profiling/",
    Server.SGLANG: "https://docs.sglang.io/developer_guide/benchmark_and_profiling.html",
}


def one_replayed_step(facts: Facts) -> bool:
    """Whether the recording is of one step of a server that replays a graph."""
    modes = facts.launches.modes
    return len(facts.engine) == 1 and modes.graph_work >= MOSTLY_REPLAYED * max(1, modes.work)


def one_step_sentence(facts: Facts) -> str:
    """Say why the host's time in one step of a server promises nothing."""
    return (
        f"{cast(Server, facts.job.server).value} can prepare a step while the GPU runs the one before, and "
        "this recording has one step only. Record several in a row."
    )


def of_one_step(finding: Finding, facts: Facts) -> Finding:
    """Return a finding about the host's own work in the only step of a recording."""
    return replace(
        finding,
        summary=f"{finding.summary} {one_step_sentence(facts)}",
        fix=_fix(
            record_again("Record several steps in a row, without stacks."), cast(Server, facts.job.server)
        ),
        saving=None,
        removable=None,
        sure=False,
        records_again=True,
    )


def for_server(answer: RuleAnswer, server: Server | None) -> RuleAnswer:
    """Return the answer with advice on recording this server instead of a training loop."""
    if server is None:
        return answer
    if isinstance(answer, CannotTell):
        return replace(answer, how_to_record=_text(answer.how_to_record))
    return with_findings(answer, lambda finding: replace(finding, fix=_fix(finding.fix, server)))


def _text(text: str) -> str:
    said = (
        _MORE_STEPS if any(part in sentence for part in _ABOUT_STEPS) else sentence
        for sentence in sentences(text)
    )
    return " ".join(dict.fromkeys(said))


def _fix(fix: Fix, server: Server) -> Fix:
    recipe = _RECIPES.get(server, _RECIPE)
    if fix.code in (RECORDING, RECORDING_FOR_FIGURES):
        code = recipe
    else:
        paragraphs = fix.code.split("\n\n")
        code = "\n\n".join(dict.fromkeys(_of_server(one, recipe, server) for one in paragraphs))
    url = _URLS.get(server, fix.url) if fix.url == PROFILER_URL else fix.url
    return Fix(_text(fix.text), code, url)


def _of_server(code: str, recipe: str, server: Server) -> str:
    """Return what replaces a paragraph of code that records or measures a training loop."""
    if "torch.profiler" in code:
        return recipe
    if "train_step(" in code:
        return f"# Without the profiler: {_BENCHMARKS.get(server, 'the benchmark of the server')}"
    return code
