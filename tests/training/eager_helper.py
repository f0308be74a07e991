"""The helper process at normal priority: on a busy machine, the lowest one would stall the tests."""

from __future__ import annotations

import os
import sys

from tb_gpudiag.service.processes.child_process import die_with_parent
from tb_gpudiag.training.serving import serve

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    serve(os.fdopen(1, "wb"), *sys.argv[2:])
