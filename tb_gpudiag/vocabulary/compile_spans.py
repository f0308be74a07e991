"""Spans that compile or capture GPU code on the host: TorchDynamo's marks, frames of torch and Triton."""

from __future__ import annotations

from tb_gpudiag.vocabulary.patterns import PATH, any_of

# The copy of a graph is compiled in a backward pass before any mark begins.
_GRAPHS = PATH + r"torch/fx/graph_module\.py\(\d+\): (__deepcopy__|recompile)"
_DYNAMO = (r".*\(dynamo_timed\)", PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): .*", _GRAPHS)
_TRITON = (PATH + r"triton/compiler/compiler\.py\(\d+\): compile",)
_AUTOTUNE = (
    PATH + r"triton/runtime/autotuner\.py\(\d+\): _bench",
    PATH + r"torch/_inductor/runtime/triton_heuristics\.py\(\d+\): "
    r"(autotune_to_one_config|benchmark_all_configs|precompile)",
)
_EXTENSION = (PATH + r"torch/utils/cpp_extension\.py\(\d+\): (load|load_inline|_jit_compile)",)
_CAPTURE = (PATH + r"torch/cuda/graphs\.py\(\d+\): (capture_begin|capture_end)",)

DYNAMO, TRITON, AUTOTUNE = any_of(*_DYNAMO), any_of(*_TRITON), any_of(*_AUTOTUNE)
EXTENSION, GRAPH_CAPTURE = any_of(*_EXTENSION), any_of(*_CAPTURE)
COMPILE = any_of(*_DYNAMO, *_TRITON, *_AUTOTUNE, *_EXTENSION, *_CAPTURE)

# One function that TorchDynamo compiles: its own mark, or its frame where there is no mark.
COMPILED_FUNCTION = any_of(r"_compile(\.(<locals>\.)?compile_inner)? \(dynamo_timed\)")
COMPILED_FUNCTION_FRAME = any_of(PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): _compile")
