"""All jobs: importing them registers them."""

from tests.truth.jobs import (  # noqa: F401
    collectives,
    compilation,
    healthy,
    healthy_ranks,
    host,
    loading,
    operators,
    paid_back,
    ranks,
    small_changes,
)
