"""Which process on which host something belongs to, and whether that process is gone for sure.

Knows nothing of locks or leases.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Of /proc/PID/stat, counted behind the command's closing bracket (proc_pid_stat(5)).
_STATE_FIELD = 0
_START_TIME_FIELD = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process.

    Attributes:
        host: its host name.
        boot: id of the host's boot and of the process's pid name space: process ids mean the same
            only where both are equal.
        pid: its process id.
        started: clock ticks from boot to its start, which tells it from a later process of its id.
    """

    host: str
    boot: str
    pid: int
    started: str

    @property
    def text(self) -> str:
        """The owner as shown to users."""
        return f"process {self.pid} on {self.host}"

    def is_known(self) -> bool:
        """Tell whether this process can see whether that one lives."""
        here = current_owner()
        return here.started != "" and (self.host, self.boot) == (here.host, here.boot)

    def is_gone(self) -> bool:
        """Tell whether the process has certainly ended; False where that cannot be known."""
        if not self.is_known():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # It lives and is another user's.
        fields = _stat_fields(self.pid)
        # Unreadable where /proc hides other users' processes.
        if not fields:
            return False
        # A zombie has ended, and may wait for ever for a parent that asks after it.
        return fields[_STATE_FIELD] == "Z" or fields[_START_TIME_FIELD] != self.started


def current_owner() -> Owner:
    """Describe the process that calls."""
    pid = os.getpid()
    fields = _stat_fields(pid)
    return Owner(
        host=platform.node(),
        boot=f"{_boot_id()} {_pid_space()}",
        pid=pid,
        started=fields[_START_TIME_FIELD] if fields else "",
    )


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _stat_fields(pid: int) -> list[str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
