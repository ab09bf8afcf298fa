"""How many threads the user gives to engine calls. Knows nothing of engines."""

from collections.abc import Mapping


def wanted_threads(configured: int | None, environ: Mapping[str, str]) -> int | None:
    """Return the option, else OMP_NUM_THREADS; None = the user leaves it open."""
    inherited = environ.get("OMP_NUM_THREADS", "")
    if configured is not None:
        return configured
    if inherited.isascii() and inherited.isdigit() and int(inherited) > 0:
        return int(inherited)
    return None
