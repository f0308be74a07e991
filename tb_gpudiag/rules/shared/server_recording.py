"""How to record an inference server: it starts torch.profiler itself, and marks no steps."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.rules.rule import CannotTell, Finding, Fix, RuleAnswer
from tb_gpudiag.rules.shared.recording_advice import PROFILER_URL
from tb_gpudiag.vocabulary.libraries import Server
from tb_gpudiag.wording.format import sentences
from tb_gpudiag.wording.good_recording import RECORDING, RECORDING_FOR_FIGURES

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

_RECIPE = "# Start the server's profiler once it is warm, and stop it after several steps."

_URLS = {
    Server.VLLM: "https://docs.vllm.ai/en/stable/contributing/profiling/",
    Server.SGLANG: "https://docs.sglang.io/developer_guide/benchmark_and_profiling.html",
}


def for_server(answer: RuleAnswer, server: Server | None) -> RuleAnswer:
    """Return the answer with advice on recording this server instead of a training loop."""
    if server is None:
        return answer
    if isinstance(answer, CannotTell):
        return replace(answer, how_to_record=_text(answer.how_to_record))
    if isinstance(answer, Finding):
        return replace(answer, fix=_fix(answer.fix, server))
    if isinstance(answer, list):
        return [replace(finding, fix=_fix(finding.fix, server)) for finding in answer]
    return answer


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
        code = "\n\n".join(dict.fromkeys(recipe if "torch.profiler" in one else one for one in paragraphs))
    url = _URLS.get(server, fix.url) if fix.url == PROFILER_URL else fix.url
    return Fix(_text(fix.text), code, url)
