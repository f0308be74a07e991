"""Soak: a TensorBoard whose log directory, cache and workers are disturbed for a long time, while pages ask;
and a team on one shared cache.

`make soak` runs for half an hour, test_soak.py for seconds.
"""
