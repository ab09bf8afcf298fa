"""Variables of OpenMP's library are judged before it is loaded, as it judges them."""

import os
import subprocess
import sys

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.openmp_variables import num_openmp_threads, settle_openmp_variables

LOADED = "import ctypes; print(ctypes.CDLL('libgomp.so.1').omp_get_max_threads())"
GOOD = (
    ("OMP_NUM_THREADS", "3"),
    ("OMP_NUM_THREADS", " 007 "),
    ("OMP_NUM_THREADS", "4,2"),
    ("OMP_NUM_THREADS", "4096 , 1"),
    ("OMP_WAIT_POLICY", "passive"),
    ("OMP_WAIT_POLICY", " ACTIVE"),
    ("GOMP_SPINCOUNT", "0"),
    ("GOMP_SPINCOUNT", "300000"),
    ("GOMP_SPINCOUNT", "Infinity"),
)
WRONG = (
    *(("OMP_NUM_THREADS", text) for text in ("x", "0", "-1", "4x", "4,", ",4", "1.5", "٣")),
    *(("OMP_WAIT_POLICY", text) for text in ("x", "0", "passive,active")),
    *(("GOMP_SPINCOUNT", text) for text in ("x", "inf", "3 rounds", "9" * 30)),
)
ONLY_WE_REFUSE = (("OMP_NUM_THREADS", "4097"), ("OMP_NUM_THREADS", "99999999999"))
"""The library would try to start that many threads."""


def library_says(name: str, text: str) -> tuple[str, int]:
    """What the library writes when it is loaded, and its number of threads."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={**os.environ, name: text},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr, int(done.stdout)


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_what_is_accepted_the_library_accepts(name: str, text: str) -> None:
    environ = {name: text}
    settle_openmp_variables(environ)
    assert environ == {name: text}
    said, num_threads = library_says(name, text)
    assert said == ""
    if name == "OMP_NUM_THREADS":
        assert num_openmp_threads(environ) == num_threads


@pytest.mark.parametrize(("name", "text"), [*WRONG, *ONLY_WE_REFUSE])
def test_what_is_refused_is_named(name: str, text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settle_openmp_variables({name: text})
    message = str(refusal.value)
    assert message.startswith(f"{name}={text}: expected ")
    assert message.endswith("; correct it, or unset it")
    if (name, text) not in ONLY_WE_REFUSE:
        assert "Invalid value" in library_says(name, text)[0]


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_one_counts_as_unset(text: str) -> None:
    environ = {"OMP_NUM_THREADS": text, "GOMP_SPINCOUNT": text, "PATH": "/bin"}
    settle_openmp_variables(environ)
    assert environ == {"PATH": "/bin"}
    assert num_openmp_threads(environ) == 0
