"""All loops: importing them registers them."""

from tests.truth.loops import (  # noqa: F401
    containers,
    graphs,
    recommendation,
    references,
    reinforcement,
    science,
    services,
    signals,
    text,
    training,
    vision,
)
