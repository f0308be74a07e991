"""See serving.py."""

from __future__ import annotations

from tb_gpudiag.service.processes.serving import main

if __name__ == "__main__":
    main()
