"""`python -m tb_gpudiag`, the same as the command `gpudiag`."""

from __future__ import annotations

import sys

from tb_gpudiag.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
