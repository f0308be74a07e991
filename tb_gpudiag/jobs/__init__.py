"""Many traces: what the ranks of a job, the recordings of a run, or two traces say together.

Modules read digests and tables, never traces. They compute facts: no thresholds and no words.
"""
