"""All jobs: importing them registers them."""

from tests.truth.jobs import (  # noqa: F401
    collectives,
    compilation,
    fifth_round,
    fourth_ranks,
    healthy,
    host,
    later_ranks,
    loading,
    operators,
    ranks,
    seventh_ranks,
    seventh_round,
    sharded,
    sixth_round,
    small_changes,
    third_round,
    unseen,
    unseen_ranks,
)
