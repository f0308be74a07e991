"""Frames: which of them are a place in the user's code."""

from __future__ import annotations

from tb_gpudiag.vocabulary.frames import (
    Frame,
    LineKind,
    innermost_place,
    is_installed,
    place_frame,
    stack_place,
    with_any_numbers,
)
from tests.with_each import with_each


@with_each(
    ("name", "expected"),
    [
        ("train.py(12): step", "train.py(12): step"),
        ("/home/me/job/main.py(3): <module>", "/home/me/job/main.py(3): <module>"),
        (
            "transformers/image_transforms.py(390): normalize",
            "transformers/image_transforms.py(390): normalize",
        ),
        (r"C:\job\train.py(7): run", r"C:\job\train.py(7): run"),
        ("torch/nn/modules/module.py(1743): _call_impl", None),
        ("/usr/lib/python3.11/site-packages/torch/_ops.py(1): __call__", None),
        ("threading.py(982): run", None),
        ("multiprocessing/spawn.py(122): spawn_main", None),
        ("numpy/core/shape_base.py(372): stack", None),
        ("<built-in method run_backward of x object at 0x7f>", None),
        ("<frozen importlib._bootstrap>(1): _load", None),
        ("nn.Module: Linear_0", None),
        ("aten::mm", None),
        ("profile.py(4): main", "profile.py(4): main"),
        ("train.py(4): <lambda>", "train.py(4): <lambda>"),
        ("train.py(4): <listcomp>", None),
        ("train.py(4): <genexpr>", None),
    ],
)
def test_which_frames_are_a_place(name: str, expected: str | None) -> None:
    frame = place_frame(name)
    assert (f"{frame.file}({frame.line}): {frame.function}" if frame else None) == expected


def test_an_old_call_stack_names_the_users_line() -> None:
    site = "/home/me/env/lib/python3.7/site-packages/"
    libraries = [f"{site}torch/nn/functional.py(9): relu", f"{site}torchvision/models/resnet.py(5): forward"]
    stack = ";".join([*libraries, "job.py(46): <module>"])
    frame = stack_place(stack)
    assert frame is not None
    assert (frame.file, frame.line, frame.function) == ("job.py", 46, "<module>")


def test_numbers_and_addresses_in_a_name_vary_but_not_the_line_of_a_frame() -> None:
    pattern = with_any_numbers("<built-in method step of Loader object at 0x7f12>")
    assert pattern.fullmatch("<built-in method step of Loader object at 0xabc>")
    assert not pattern.fullmatch("<built-in method stop of Loader object at 0xabc>")
    frame = with_any_numbers("train.py(12): log")
    assert frame.fullmatch("train.py(12): log")
    assert not frame.fullmatch("train.py(13): log")


@with_each(
    ("file", "installed"),
    [
        ("transformers/image_transforms.py", True),
        ("/usr/lib/python3.11/site-packages/mylib/a.py", True),
        ("transformers.py", False),
        ("/home/me/vllm/train.py", False),
        ("train.py", False),
        ("myproject/data.py", False),
        (r"C:\job\datasets\a.py", False),
    ],
)
def test_which_places_are_in_installed_packages(file: str, installed: bool) -> None:
    assert is_installed(Frame(file, 1, "f")) is installed


def test_what_the_line_of_a_frame_is() -> None:
    defined, stack = place_frame("train.py(12): step"), stack_place("train.py(12): step")
    snapshot = innermost_place("train.py(12): step")
    assert defined is not None
    assert defined.line_kind is LineKind.DEFINITION
    assert stack is not None
    assert stack.line_kind is LineKind.RUNNING
    assert snapshot == stack
    assert str(defined) == "step (train.py, defined at line 12)"
    assert (str(stack), stack.preposition) == ("train.py:12 in step", "at")
    assert str(defined.without_line()) == "step (train.py)"
    assert str(Frame("", 0, "step")) == "step"


def test_a_comprehension_is_a_place_where_its_line_is_known() -> None:
    place = innermost_place("train.py(12): step\ntrain.py(14): <listcomp>")
    assert str(place) == "train.py:14 in step"
    assert str(innermost_place("train.py(14): <genexpr>")) == "train.py:14 in <genexpr>"


@with_each("name", ["(0): f", "??(0): c10::alloc", ":0", "<string>(1): f"])
def test_a_frame_without_a_file_is_no_place(name: str) -> None:
    assert place_frame(name) is None
