"""Real jobs as judges of the diagnosis: `python -m tests.truth OUT [NAME...]`.

Each job is a small training loop with one mechanism that makes real jobs slow, written without a look at the
rules, or a healthy one. It runs with and without its fault, by turns: timed without the profiler, and
recorded.
"""
