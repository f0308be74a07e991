"""All jobs on a GPU: importing them registers them."""

from tests.truth.gpu import healthy, host, kernels, transfers  # noqa: F401
from tests.truth.gpu.others import faults, more_faults  # noqa: F401
