"""`gpudiag schema`: print the JSON Schema of `gpudiag diagnose --format json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tb_gpudiag.report.json_schema import diagnosis_schema


def run(arguments: Sequence[str]) -> int:
    """Return 0."""
    argparse.ArgumentParser(
        prog="gpudiag schema",
        description="Print the JSON Schema (2020-12) of what `gpudiag diagnose --format json` prints.",
    ).parse_args(arguments)
    json.dump(diagnosis_schema(), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0
