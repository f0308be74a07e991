"""All jobs on a GPU: importing them registers them."""

from tests.truth.gpu import healthy, host, kernels, others, transfers  # noqa: F401
