"""Simulated jobs of many ranks: one Kineto trace per rank, and the truth about them.

    from tests.simulator.jobs import DistributedJob, JobFault, simulate_job

    job = DistributedJob("ddp", ranks=8, hosts=2, fault=JobFault("slow_gpu", ranks=(3,), amount=1.4))
    run = simulate_job(job, seed=0)
    paths = run.write(tmp_path / "job")       # HOST_PID.TIME.pt.trace.json, one per rank; or run.bytes(3)
    run.truth.rule, run.truth.cause, run.truth.ranks      # "GD602", "slow_gpu", (3,)
    run.truth.step_ns                                     # mean over the steps after the first
    run.without().truth.step_ns                           # the same seed without the fault
    run.truth.clocks["node1"].offset_ns                   # local time - true time, at true time 0
    for collective in run.truth.collectives:
        collective.waiting_ns(rank), collective.transfer_ns, collective.last_rank

Settings are in settings.py: parallelisms "ddp", "fsdp", "pp" (1F1B), "tp" and "ep" with their `degree`, and
what each fault's `amount` means. `cases(seed)` in cases.py draws a benchmark set of faulty and healthy jobs.
`run.cost_share` is the share of the step that the fault costs; `run.write(folder, ranks=...)` loses ranks.

How it works: each rank is a Python generator (program.py and its subclasses) that runs the host's actions on
the rank's own clock (rank.py) and puts work on streams. solver.py settles when work runs: after its launch,
after earlier work of its stream, and after the work that the stream was told to wait for. A collective starts
on each rank when its stream reaches it, waits for the last rank of its group, then transfers, and ends on all
ranks within a few microseconds. A rank yields only to block its host on work that has not settled.

All times in the truth are true nanoseconds. `run.truth.clocks[host].local_ns(t)` is what that host's trace
says; ranks of one host share a clock. The recordings hold local times already. Every draw has its own random
stream per rank, so a run without a fault differs in nothing but the fault.
"""

from __future__ import annotations

from tests.simulator.jobs.run import SimulatedJob, simulate_job
from tests.simulator.jobs.settings import DistributedJob, JobFault
from tests.simulator.jobs.truth import Clock, CollectiveTruth, JobTruth

__all__ = [
    "Clock",
    "CollectiveTruth",
    "DistributedJob",
    "JobFault",
    "JobTruth",
    "SimulatedJob",
    "simulate_job",
]
