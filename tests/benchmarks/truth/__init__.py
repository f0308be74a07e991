"""How often the diagnosis is right, on simulated jobs whose faults are known.

    python -m tests.benchmarks.truth [--settings 20] [--seed 0]

cases.py draws jobs with one fault, two, or none, at random severities, in every generation of the format;
labels.py says from the simulator's truth which rules must speak; score.py compares; fixes.py holds what a fix
is said to give back against the same job simulated without it; pairs.py looks at real jobs before and after.
"""
