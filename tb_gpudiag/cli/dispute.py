"""`gpudiag dispute TRACE [FINDING]`: a small file for a report that a diagnosis is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.cli.formats import write_file
from tb_gpudiag.cli.scrub import NO_PROMISE, limited
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.report.dispute import ABOUT, REPORT, TRACE, dispute
from tb_gpudiag.trace.files.copying import refuse_same_file
from tb_gpudiag.wording.format import size_bytes


def run(arguments: Sequence[str]) -> int:
    """Write the file, and say what is in it. Raises GpudiagError."""
    parsed = parser().parse_args(arguments)
    target = Path(parsed.output)
    refuse_same_file(parsed.trace, target)
    file = only_trace(parsed.trace)
    with limited(file.path):
        facts = read_facts(file)
        report, start_ns = build_report(facts, file), facts.trace.start_ns
        del facts
        content = dispute(report, file, start_ns, parsed.finding)
    write_file(target, content)
    print(f"wrote {target} ({size_bytes(len(content))}): {ABOUT}, {REPORT}, {TRACE}")
    print(NO_PROMISE)
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag dispute",
        description="Make a small file for a report that a diagnosis is wrong: the events around a finding, "
        "without the credentials that gpudiag knows, the report, and the version. Nothing is sent anywhere.",
        epilog="Exit status: 0 success, 2 invalid usage or nothing to read, 3 a bug in gpudiag.",
    )
    made.add_argument("trace", metavar="TRACE", help="a trace file, plain or gzip")
    made.add_argument(
        "finding", metavar="FINDING", nargs="?", default="", help="its id or name; default: the first finding"
    )
    made.add_argument(
        "-o", "--output", metavar="OUT", default="gpudiag-dispute.zip", help="default: %(default)s"
    )
    return made
