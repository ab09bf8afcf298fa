"""Memory that one engine call frees stays for the next. Knows nothing of engines."""

import ctypes
from collections.abc import Mapping

TRIM_VARIABLE = "MALLOC_TRIM_THRESHOLD_"
MMAP_VARIABLE = "MALLOC_MMAP_THRESHOLD_"
KEPT_BYTES = 16 << 20
"""Freed memory at the end of each thread's heap that is kept: what the tensors of a batch take."""
MAPPED_BYTES = 8 << 20
"""Blocks from this size are mapped and unmapped one by one."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them


def keep_freed_memory(environ: Mapping[str, str]) -> None:
    """Let the C library keep what a call frees, unless the user decides.

    By itself glibc gives the tensors of a large batch back to the kernel after each call, which
    clears every page again for the next one; see docs/performance.md. malloc_trim still works.

    Args:
        environ: of this process: who sets one of glibc's variables there has decided.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None or TRIM_VARIABLE in environ or MMAP_VARIABLE in environ:
        return  # not glibc, or decided
    set_option(_MMAP_THRESHOLD, MAPPED_BYTES)
    set_option(_TRIM_THRESHOLD, KEPT_BYTES)
