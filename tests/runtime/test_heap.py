"""Freed memory stays with the process, counted in the pages that the kernel had to clear again."""

import json
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, json, resource, sys
from infinity_v3.runtime.engines.heap import keep_freed_memory

environ = json.loads(sys.argv[1])
if environ is not None:
    keep_freed_memory(environ)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def call():
    blocks = [libc.malloc(2 << 20) for _ in range(6)]
    for block in blocks:
        libc.memset(block, 1, 2 << 20)
    for block in blocks:
        libc.free(block)


for _ in range(5):
    call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_cleared(environ: dict[str, str] | None) -> int:
    """Page faults of ten rounds that take and free 12 MB; None = glibc as it is."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(environ)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


def test_what_a_call_frees_is_there_for_the_next() -> None:
    assert pages_cleared({}) < 100
    assert pages_cleared(None) > 1000, "glibc keeps it by itself: nothing is left to do"


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_who_sets_a_variable_has_decided(name: str) -> None:
    assert pages_cleared({name: "131072"}) > 1000
