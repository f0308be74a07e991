"""Real jobs as judges of the diagnosis, each with the answer that is right, written from its mechanism before
any was diagnosed. A file is a field or a kind of work; left_out.md says which jobs were here before.

- `jobs/`, `gpu/`: training loops with and without one fault, or healthy (`make truth`)
- `loops/`: loops that leak, and loops that only look like it (`make leaks`)
- `failing/`: jobs that run out of memory (`make failures`)
- `told_apart.py`: how well a comparison tells recordings of these jobs apart; `promised.py`: what fixes gave
- `python -m tests.truth.gpu OUT`: the run for a GPU that is lent for minutes; without one, it is a dry run
- `seen_jobs/`: what was said of each; `held_out.json`: what was right where nobody had tuned to it
"""
