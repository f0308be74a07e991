"""Replay: the trace run again without what a fix removes."""
