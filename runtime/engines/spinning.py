"""How long idle OpenMP threads spin before they sleep. Knows nothing of engines.

Between two parallel regions of one engine call they must not sleep: waking them takes longer than
most regions. Between two calls they must: a spinning thread holds a CPU that tokenizer, event loop
and transport are waiting for. The library's own default spins through both.
"""

from collections.abc import MutableMapping

SPIN_VARIABLE = "GOMP_SPINCOUNT"
POLICY_VARIABLE = "OMP_WAIT_POLICY"
DEFAULT_SPIN_COUNT = 3_000
"""Some ten microseconds: longer than the gap between two regions, far shorter than that between two
calls. Calls take no longer than with the library's 300,000; see docs/performance.md."""

MAX_SPIN_COUNT = 300_000
"""The library's own, which is the largest that is measured."""


def check_spin_count(measured: int | None) -> tuple[int | None, tuple[str, ...]]:
    """Take a measured count unless it would let threads spin through everything.

    Returns:
        The count or None for the default, and a sentence where the measured one gave way.
    """
    if measured is None or measured <= MAX_SPIN_COUNT:
        return measured, ()
    note = (
        f"idle threads spin {DEFAULT_SPIN_COUNT} times, the default, as the {measured} that were "
        f"measured are more than {MAX_SPIN_COUNT}"
    )
    return None, (note,)


def limit_spinning(spin_count: int | None, environ: MutableMapping[str, str]) -> None:
    """Set the count, unless the user decides; the library reads it once, when it is loaded.

    Args:
        spin_count: how often a thread looks for work before it sleeps; None = the default.
        environ: of this process; child processes inherit it.
    """
    if POLICY_VARIABLE in environ:
        return
    environ.setdefault(SPIN_VARIABLE, str(spin_count or DEFAULT_SPIN_COUNT))
    # Every thread that makes calls has a team of its own. While there are more threads in all teams
    # than CPUs, the library looks 100 times at most, which is too short between two regions; with
    # this it looks 1,000 times.
    environ[POLICY_VARIABLE] = "ACTIVE"
