"""The environment variables that OpenMP's library reads when it is loaded.

Its own word on a wrong one is a line on standard error that names no program, after which it goes
on without. Knows nothing of threads or engines.
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError

MAX_THREADS = 4096
_COUNT = r"\s*0*[1-9][0-9]{0,3}\s*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    pattern: re.Pattern[str]
    expected: str


_RULES: Mapping[str, _Rule] = {
    "OMP_NUM_THREADS": _Rule(
        pattern=re.compile(rf"{_COUNT}(?:,{_COUNT})*"),
        expected=f"a number of threads, 1 to {MAX_THREADS}, or one for each level, as in 4,2",
    ),
    "OMP_WAIT_POLICY": _Rule(
        pattern=re.compile(r"\s*(?:active|passive)\s*", re.IGNORECASE),
        expected="ACTIVE or PASSIVE",
    ),
    "GOMP_SPINCOUNT": _Rule(
        pattern=re.compile(r"\s*(?:[0-9]{1,18}|infinite|infinity)\s*", re.IGNORECASE),
        expected="a number of rounds, or INFINITE",
    ),
}


def settle_openmp_variables(environ: MutableMapping[str, str]) -> None:
    """Check them before the library is loaded; an empty one counts as unset and is taken away.

    Args:
        environ: of this process; child processes inherit it.

    Raises:
        UsageError: a malformed value.
    """
    for name, rule in _RULES.items():
        text = environ.get(name)
        if text is None:
            continue
        if not text.strip():
            del environ[name]
        elif not rule.pattern.fullmatch(text) or num_openmp_threads(environ) > MAX_THREADS:
            raise UsageError(f"{name}={text}: expected {rule.expected}; correct it, or unset it")


def num_openmp_threads(environ: Mapping[str, str]) -> int:
    """Threads of the outermost level as OMP_NUM_THREADS has them; 0 = it leaves them open."""
    first = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() else 0
