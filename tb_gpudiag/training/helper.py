"""A process next to a training job: `python -m tb_gpudiag.training.helper PARENT [NAME]`.

It diagnoses recordings, or copies them to a store (see serving.py). It lowers its priority before it imports
much, and exits when stdin ends or the process PARENT does. It never imports torch, so it has no CUDA context.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from pathlib import Path
from typing import Final

from tb_gpudiag.service.processes.child_process import die_with_parent, lower_priority

# The lowest priority: on a busy core, 1.5% of its time.
NICE: Final = 19


def main() -> None:
    """Serve the parent in the background."""
    faulthandler.enable()
    # Libraries may print: that must not get between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    die_with_parent(int(sys.argv[1]))
    lower_priority(NICE)
    with contextlib.suppress(OSError):  # in a session of its own, Linux may schedule it as an equal
        Path("/proc/self/autogroup").write_text(str(NICE))
    from tb_gpudiag.training.serving import serve

    serve(out, *sys.argv[2:])


if __name__ == "__main__":
    main()
