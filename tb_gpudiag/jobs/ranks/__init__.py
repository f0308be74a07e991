"""Ranks of a job: which recordings belong together, clocks, collectives, who waits for whom and why."""
