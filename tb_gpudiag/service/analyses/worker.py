"""Run an analysis, in a process of its own: see analysis_queue.py and processes/."""

from __future__ import annotations

from tb_gpudiag.service.analyses import tasks
from tb_gpudiag.service.analyses.task import Task, save
from tb_gpudiag.service.processes.child_messages import Message
from tb_gpudiag.service.processes.serving import Reply


def answer(request: Message, reply: Reply) -> Message:
    """Do a Task, and answer which draft has its result."""
    task = Task.of(request)
    reply.bound_memory(task.memory_limit_bytes)
    return Message({"draft": str(save(tasks.do(task, reply.progress), task.drafts))})
