"""Facts about this process from the kernel."""

import ctypes
import os
import time
from pathlib import Path


def seconds_since_process_start() -> float:
    """Age of the process; the kernel counts in hundredths of a second."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    start_ticks = int(stat.rpartition(")")[2].split()[19])
    started_s = start_ticks / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def resident_bytes() -> int:
    """Memory of the process that is in RAM now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def give_memory_back() -> None:
    """Return freed memory to the kernel; the C library keeps it otherwise, for each thread anew."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc's alone
        trim(0)
