"""Dumps of torch's flight recorder: the last collectives that each rank of a job has called."""
