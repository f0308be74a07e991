"""What the marks of engine steps say."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.vocabulary.engines import STEP_MARK, EngineMark, StepKind, read_mark
from tests.with_each import with_each

MARKS = {
    # vLLM: requests and tokens of prompts, then of generation
    "execute_context_2(14721)_generation_0(0)": EngineMark(StepKind.PREFILL, 2, 14721, 2, 0),
    "execute_context_0(0)_generation_64(64)": EngineMark(StepKind.DECODE, 64, 64, 0, 64),
    "execute_context_2(6144)_generation_3(3)": EngineMark(StepKind.MIXED, 5, 6147, 2, 3),
    "execute_context_1(888_788544)_generation_0(0)": EngineMark(StepKind.PREFILL, 1, 888, 1, 0),
    # two drafted tokens for each request
    "execute_context_0(0)_generation_8(24)": EngineMark(StepKind.DECODE, 8, 24, 0, 8),
    # a later chunk of a prompt, which older versions count as generation; and one among decodes
    "execute_context_0(0)_generation_1(2048)": EngineMark(StepKind.PREFILL, 1, 2048, 1, 0),
    "execute_context_0(0)_generation_9(2056)": EngineMark(StepKind.MIXED, 9, 2056),
    "execute_context_0(0)_generation_0(0)": EngineMark(StepKind.IDLE, 0, 0, 0, 0),
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)": (
        EngineMark(StepKind.MIXED, 46, 8192, 9, 37, 7671310 - (7475785 - 8155) // 2 + 34489, 8430 + 34489)
    ),
    # SGLang
    "step[DECODE bs=16]": EngineMark(StepKind.DECODE, 16, 16, 0, 16),
    "step[DECODE bs=64 g_sq=64 g_sqsq=64 g_sqsk=131072 g_sk=131072]": (
        EngineMark(StepKind.DECODE, 64, 64, 0, 64, 131072, 131072)
    ),
    # prompts of 8 and 4 more tokens, each with 10 keys then: 3 + … + 10 and 7 + … + 10 pairs
    "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]": (
        EngineMark(StepKind.PREFILL, 2, 12, 2, 0, 52 + 34, 20)
    ),
    "step[decode bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]": EngineMark(StepKind.DECODE, 2, 2, 0, 2, 30, 30),
    "step[EXTEND bs=15 toks=15360]": EngineMark(StepKind.PREFILL, 15, 15360, 15, 0),
    "step[MIXED bs=2]": EngineMark(StepKind.MIXED, 2, NONE),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 g_sq=1 g_sk=12]": EngineMark(StepKind.MIXED, 2, 6, 1, 1),
    "step[TARGET_VERIFY bs=4]": EngineMark(StepKind.DECODE, 4, NONE, 0, 4),
    "step[IDLE bs=0]": EngineMark(StepKind.IDLE, 0, 0, 0, 0),
}


@with_each("name", MARKS)
def test_marks_say_what_the_requests_are_at(name: str) -> None:
    assert read_mark(name) == MARKS[name]
    assert STEP_MARK.fullmatch(name)


@with_each(
    "name",
    [
        "step[DRAFT_EXTEND bs=1]",  # by the model that drafts
        "execute_model",
        "capture_32_FULL",
        "step[DECODE bs=" + "9" * 30 + "]",
        "execute_context_1(" + "9" * 40 + ")_generation_0(0)",
    ],
)
def test_other_names_say_nothing(name: str) -> None:
    found = read_mark(name)
    assert found is None or found.requests == NONE
