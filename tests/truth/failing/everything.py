"""All jobs that run out of memory: importing them registers them."""

from tests.truth.failing import (  # noqa: F401
    generative,
    graphs,
    recommendation,
    reinforcement,
    science,
    signals,
    text,
    training,
    vision,
)
