"""Examples from real recordings: `python -m tools.docs.recorded TRACES TRUTH`.

The recordings are not part of the project. What gpudiag says about them is kept in recorded/, a page and a
picture per rule, and says on which day gpudiag said so. TRACES is the folder that tests on real traces read:
published recordings of others. TRUTH is what `make truth` recorded, build/truth.
"""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tools.docs.examples import of_job, of_trace

HERE: Final = Path(__file__).parent / "recorded"
KINETO: Final = ("pytorch/kineto", "BSD-3-Clause")
TRACELENS: Final = ("AMD-AGI/TraceLens", "MIT")
HOLISTIC: Final = ("facebookresearch/HolisticTraceAnalysis", "MIT")
GRAPHS: Final = ("leimao/PyTorch-CUDA-Graph-Capture-Examples", "MIT")
NANOGPT: Final = ("KellerJordan/modded-nanogpt", "MIT")
SWITCH: Final = ("CodingPlatelets/SwitchTransformers", "MIT")
FAST_SAM: Final = ("meta-pytorch/segment-anything-fast", "Apache-2.0")
PARAM: Final = ("facebookresearch/param", "MIT")
COURSE: Final = ("Aphelack/efficient-dl-systems", "MIT")
DICTIONARY: Final = ("jacobcd52/dictionary_learning", "MIT")
ZOOLOGY: Final = ("HazyResearch/zoology", "Apache-2.0")
OURS: Final = ("", "")


@dataclass(frozen=True)
class Recording:
    """A recording. folder: a pattern below TRACES or TRUTH; rules: that it is an example of."""

    folder: str
    what: str
    source: tuple[str, str]  # repository at GitHub, and licence
    rules: tuple[str, ...]
    is_job: bool = False


PUBLISHED: Final = (
    Recording("v100_resnet50_workers0", "ResNet-50 on a V100, without workers", KINETO, ("GD101",)),
    Recording("v100_resnet50_workers4", "ResNet-50 on a V100, with four workers", KINETO, ("GD202",)),
    Recording("h100_timesformer", "inference of TimeSformer on an H100", TRACELENS, ("GD102", "GD503")),
    Recording("h100_bert_small", "inference of a small BERT on an H100", TRACELENS, ("GD907",)),
    Recording(
        "mi300_ddp_resnet18_no_pool",
        "ResNet-18 on an MI300X, with PyTorch's caching allocator switched off",
        TRACELENS,
        ("GD103", "GD106"),
    ),
    Recording("mi210_gpu_only", "GPU activity of a job on an MI210", TRACELENS, ("GD504", "GD506")),
    Recording("mi300_xdit_compiled", "a compiled diffusion model on an MI300X", TRACELENS, ("GD507",)),
    Recording("a100_recsys_queued", "a recommender on an A100", HOLISTIC, ("GD105", "GD502")),
    Recording("diff_control", "a recommender on several A100", HOLISTIC, ("GD601",)),
    Recording("v100_ddp_memory", "a job of several V100", HOLISTIC, ("GD403",)),
    Recording("a100_alexnet_first_run", "the first run of AlexNet on an A100", HOLISTIC, ("GD901", "GD902")),
    Recording("rtx5080_without_cuda_graph", "a small model on an RTX 5080", GRAPHS, ("GD201",)),
    Recording("rtx5080_with_cuda_graph", "the same model as a CUDA graph", GRAPHS, ("GD513",)),
    Recording("a100_segment_anything", "Segment Anything on an A100", FAST_SAM, ("GD301", "GD505", "GD510")),
    Recording("a100_switch_8batch", "a mixture of experts on an A100", SWITCH, ("GD406", "GD501")),
    Recording("v100_dlrm_8ranks", "a recommender on eight V100", PARAM, ("GD606",), is_job=True),
    Recording("v100_dlrm_8ranks/worker0.*", "a recommender on eight V100, rank 0", PARAM, ("GD303",)),
    Recording("a4000_gpu_only_one_step", "one step on an RTX A4000", COURSE, ("GD302", "GD910")),
    Recording(
        "a40_memory_full_no_kernels",
        "a job on an A40 whose memory is full",
        DICTIONARY,
        ("GD402",),
    ),
    Recording(
        "a100_launches_without_kernels",
        "a job on an A100",
        ZOOLOGY,
        ("GD905",),
    ),
    Recording("h100_nanogpt_8ranks", "GPT-2 on eight H100", NANOGPT, ("GD602", "GD607"), is_job=True),
    Recording("h100_nanogpt_slowed_by_profiler", "GPT-2 on eight H100, rank 0", NANOGPT, ("GD908",)),
    Recording("h100_nanogpt_before_hook", "GPT-2 on eight H100, rank 0", NANOGPT, ("GD903",)),
)

OWN: Final = tuple(
    Recording(f"{name}/before_second/plain", what, OURS, rules, is_job)
    for name, what, rules, is_job in (
        (
            "recompile_each_step",
            "a model compiled for one shape, on batches of other shapes",
            ("GD104",),
            False,
        ),
        ("evaluate_each_step", "a model evaluated in each step", ("GD511",), False),
        ("heavy_batches_on_a_rank", "four ranks, one with more rows than the others", ("GD603",), True),
        ("mismatched_broadcast", "ranks that broadcast tensors of different sizes", ("GD605",), True),
        ("tiny_collectives", "gradients reduced parameter by parameter", ("GD608", "GD609"), True),
    )
)


DAY: Final = re.compile(r"gpudiag said on [-\d]+:")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.docs.recorded", description=__doc__)
    parser.add_argument("traces", type=Path, metavar="TRACES", help="folder of the published recordings")
    parser.add_argument("truth", type=Path, metavar="TRUTH", help="folder that `make truth` wrote")
    parsed = parser.parse_args()
    for folder, recordings in ((parsed.traces, PUBLISHED), (parsed.truth, OWN)):
        for recording in recordings:
            for page, content in stale(recording, folder):
                page.write_text(content, encoding="utf-8")


def stale(recording: Recording, folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of a recording's rules that say something else today, and what they are to say: the page of
    a rule, and its picture.

    Raises KeyError if a rule no longer finds anything in the recording.
    """
    path = str(min(folder.glob(recording.folder)))
    found = of_job(path) if recording.is_job else of_trace(path)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    for id in recording.rules:
        rule = find_any_rule(id)
        assert rule
        repository, licence = recording.source
        published = f"published by [{repository}](https://github.com/{repository}), {licence}"
        source = published if repository else "recorded for this project, on a CPU"
        origin = f"A real recording: {recording.what}, {source}. gpudiag said on {today}:"
        example = found[id]
        picture = HERE / f"{rule.name}.svg"
        for page, content in (
            (picture.with_suffix(".md"), example.section(origin, picture.name)),
            (picture, example.picture),
        ):
            kept = page.read_text(encoding="utf-8") if page.exists() else ""
            if DAY.sub("", kept) != DAY.sub("", content):
                yield page, content


if __name__ == "__main__":
    main()
