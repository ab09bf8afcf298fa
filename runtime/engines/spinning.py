"""How long idle OpenMP threads spin before they sleep. Knows nothing of engines.

Between two parallel regions of one engine call they must not sleep: waking them takes longer than
most regions. Between two calls they must: a spinning thread holds a CPU that tokenizer, event loop
and transport are waiting for. The library's own default spins through both.
"""

from collections.abc import MutableMapping

SPIN_VARIABLE = "GOMP_SPINCOUNT"
DEFAULT_SPIN_COUNT = 3_000
"""Some ten microseconds: longer than the gap between two regions, far shorter than that between two
calls. Calls take no longer than with the library's 300,000; see docs/performance.md."""


def limit_spinning(spin_count: int | None, environ: MutableMapping[str, str]) -> None:
    """Set the count, unless the user decides; the library reads it once, when it is loaded.

    Args:
        spin_count: how often a thread looks for work before it sleeps; None = the default.
        environ: of this process; child processes inherit it.
    """
    if SPIN_VARIABLE not in environ and "OMP_WAIT_POLICY" not in environ:
        environ[SPIN_VARIABLE] = str(spin_count or DEFAULT_SPIN_COUNT)
