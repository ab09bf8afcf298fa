"""Where the user keeps what can be made again, and what cannot. Creates nothing."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def user_cache(environ: Mapping[str, str]) -> Path | None:
    """Return `$XDG_CACHE_HOME/infinity_v3`, or the same below the home directory.

    Relative paths count as absent (XDG Base Directory Specification). None = the user has neither a
    home directory nor an entry in the user database, as in many containers.
    """
    return _below(environ, "XDG_CACHE_HOME", ".cache")


def user_data(environ: Mapping[str, str]) -> Path | None:
    """Return `$XDG_DATA_HOME/infinity_v3`, or the same below the home directory, by those rules."""
    return _below(environ, "XDG_DATA_HOME", ".local/share")


def _below(environ: Mapping[str, str], variable: str, folder: str) -> Path | None:
    root = Path(environ.get(variable, ""))
    if root.is_absolute():
        return root / "infinity_v3"
    home = Path(environ["HOME"] if "HOME" in environ else _recorded_home())
    return home / folder / "infinity_v3" if home.is_absolute() else None


def _recorded_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
