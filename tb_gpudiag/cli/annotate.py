"""`gpudiag annotate TRACE -o OUT`: copy a trace with tracks for idle time, findings and launch queues."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.cli.inputs import progress_bar
from tb_gpudiag.cli.output import tell
from tb_gpudiag.cli.scrub import add_copy, limited
from tb_gpudiag.report.annotate import annotate
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.files.copying import refuse_same_file, whole_file
from tb_gpudiag.trace.files.file_names import database_refused
from tb_gpudiag.trace.files.find import may_be_database
from tb_gpudiag.wording.vocabulary import left_out


def run(arguments: Sequence[str]) -> int:
    """Write the copy. Raises GpudiagError."""
    parsed = parser().parse_args(arguments)
    target = Path(parsed.output)
    refuse_same_file(parsed.trace, target)
    file = only_trace(parsed.trace)
    if may_be_database(file):  # before SQLite reads it: see apart.py
        raise database_refused(file.path)
    with limited(file.path), contextlib.ExitStack() as stack:
        show = stack.enter_context(progress_bar(1, quiet=parsed.quiet))
        facts = read_facts(file, show)
        report, prepared = build_report(facts, file), prepare_timeline(facts)
        del facts
        show(0.9, "writing")
        output = stack.enter_context(whole_file(target))
        places = annotate(
            report, prepared, file.path, output.write, pack=target.name.endswith(".gz"), folder=file.folder
        )
    if places:
        tell(left_out(places, "The copy"))
    tell(f"wrote {target}: open it in https://ui.perfetto.dev or chrome://tracing")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag annotate",
        description="Copy a trace with three kinds of tracks added: what the findings are about, each GPU's "
        "idle time by cause, and the depth of its launch queues. Open the copy in https://ui.perfetto.dev or "
        "chrome://tracing. The original events stay as they are, without credentials.",
        epilog="Exit status: 0 success, 2 invalid usage or nothing to read, 3 a bug in gpudiag.",
    )
    add_copy(made)
    made.add_argument("--quiet", action="store_true", help="do not show progress")
    return made
