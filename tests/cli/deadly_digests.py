"""A process that digests files, and is killed by one."""

from __future__ import annotations

import os
import signal
from typing import Any

from tb_gpudiag.service.analyses import digests
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    if request["file"]["run"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return digests.answer(request, reply)
