"""What changes over the recordings of a run: step time, causes, findings, memory."""
