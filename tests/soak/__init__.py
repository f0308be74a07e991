"""Soak: a TensorBoard whose log directory, cache and workers are disturbed for a long time, while pages ask.

`make soak` runs for half an hour, test_soak.py for seconds.
"""
