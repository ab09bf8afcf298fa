"""Decides where built kernel libraries are kept between compiles. Knows nothing of what they hold.

The cache only saves time: without a place for one, a compile keeps its own and throws it away.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.compiler.progress import Progress


def check_kernel_cache(named: Path | None) -> None:
    """Refuse a cache that the user asked for and that cannot be written to. Creates nothing.

    Raises:
        UsageError: naming the option and what is in the way.
    """
    problem = None if named is None else _problem(named)
    if problem is not None:
        raise UsageError(
            f"--kernel-cache: {named} cannot be used: {problem}; name a directory that you can "
            "write to, or leave the option out"
        )


@contextmanager
def kernel_cache(named: Path | None, progress: Progress) -> Iterator[Path]:
    """Yield the directory to use: the named one, the user's own, or a private one for this compile.

    Args:
        named: what the user asked for, checked before; None = the default place.
        progress: told when there is no place to keep the libraries.
    """
    default = user_cache(os.environ)
    place = named or (default and default / "kernels")
    problem = "there is no home directory" if place is None else _problem(place)
    if place is not None and (named is not None or problem is None):
        yield place.absolute()  # compilers run in folders of their own
        return
    where = "" if place is None else f"{place}: "
    progress.note(
        f"warning: {where}{problem}; built kernels are not kept, so the next compile takes longer: "
        "--kernel-cache names another place"
    )
    with tempfile.TemporaryDirectory(prefix="infinity-kernels-") as private:
        # Two levels, because precompiled headers lie beside the kernels.
        yield Path(private) / "kernels"


def _problem(cache: Path) -> str | None:
    """Say what keeps a directory from being made and filled, or None."""
    absolute = cache.absolute()
    nearest = next(path for path in (absolute, *absolute.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        return f"{nearest} is no directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest} is not writable"
    return None
