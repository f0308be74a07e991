"""A process that digests files, and is killed by one."""

from __future__ import annotations

import os
import signal

from tb_gpudiag.service.analyses import digests
from tb_gpudiag.service.processes.child_messages import ChildMessage
from tb_gpudiag.service.processes.serving import Reply


def answer(request: ChildMessage, reply: Reply) -> ChildMessage:
    if request.fields["file"]["run"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return digests.answer(request, reply)
