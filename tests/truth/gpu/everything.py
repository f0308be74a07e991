"""All jobs on a GPU: importing them registers them."""

# ruff: noqa: F401

from tests.truth.gpu import healthy, host, kernels, transfers
from tests.truth.gpu.others import faults, more_faults
from tests.truth.gpu.others import healthy as healthy_of_others
