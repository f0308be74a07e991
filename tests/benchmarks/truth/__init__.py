"""How often the diagnosis is right, on simulated jobs whose faults are known.

    python -m tests.benchmarks.truth [--settings 20] [--seed 0]

cases.py draws jobs with one fault, two, or none, at random severities, in every generation of the format.
labels.py says, from the simulator's truth, which rules must report. score.py compares the diagnosis with the
labels. traps.py draws jobs that invite one wrong statement each. fixes.py compares estimated savings with the
same job simulated without the fault. pairs.py compares them with real jobs before and after their fix.

Jobs of many ranks: jobs.py compares matching, clocks and waiting with the truth of tests/simulator/jobs.
job_score.py counts which faults, ranks and causes the rules on jobs name.
"""
