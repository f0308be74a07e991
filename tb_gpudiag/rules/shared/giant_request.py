"""The shape of a request that is too large by itself, in words: as recorded, or a guess that says so."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.memory.peak import Failure
from tb_gpudiag.facts.memory.request import Request
from tb_gpudiag.wording.format import count, in_quotes

# The usual format of numbers of each size in bytes.
_FORMATS = {8: "float64 or int64", 4: "float32", 2: "float16 or bfloat16", 1: "int8 or bool"}

_LONGEST_NAME = 80

MOST_SHAPES = 4
"""An operator that joins a list of tensors has hundreds of inputs."""

_NO_SHAPES = "The recording has no shapes: torch.profiler records them with record_shapes=True."


def request_sentence(failure: Failure) -> str:
    """Say what shapes the request follows from."""
    request = failure.request
    operator = in_quotes(failure.operator, _LONGEST_NAME) if failure.operator else "The operator"
    if request.shapes:
        given = f"{operator} was given {_shapes(request.shapes)}"
        return f"{given}, which broadcast to {request.result}." if request.result else f"{given}."
    return f"{_NO_SHAPES} {_guess(request)}" if request.rows else _NO_SHAPES


def _guess(request: Request) -> str:
    number = _FORMATS[request.element_bytes]
    matrix = f"a {number} matrix of {request.rows:,} × {request.rows:,}"
    if not request.alike:
        return f"It is as large as {matrix}, which is a guess."
    return (
        f"A guess: it is {matrix}, because it is exactly as large, and "
        f"{count(request.alike, 'allocation')} of {request.rows:,} such numbers were alive. [N, 1] with [N] "
        "broadcasts to [N, N]."
    )


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    more = len(shapes) - MOST_SHAPES
    shown = [str(list(shape)) for shape in shapes[:MOST_SHAPES]]
    if more > 0:
        shown.append(count(more, "more tensor"))
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
