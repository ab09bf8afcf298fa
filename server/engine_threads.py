"""How many threads the user gives to engine calls. Knows nothing of engines."""

from collections.abc import Mapping

from infinity_v3.artifacts.openmp_variables import num_openmp_threads


def wanted_threads(configured: int | None, environ: Mapping[str, str]) -> int | None:
    """Return the option, else OMP_NUM_THREADS; None = the user leaves it open."""
    return configured if configured is not None else num_openmp_threads(environ) or None
