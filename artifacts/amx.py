"""Asks the Linux kernel for permission to use AMX tiles, which cpuinfo alone does not grant."""

import ctypes
import errno
import os

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


def request_amx_tiles() -> str | None:
    """Ask for the process-wide tile permission; call on x86-64 Linux only.

    Returns:
        None when it was granted (it then holds for all threads), else the kernel's reason.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(
        ctypes.c_long(_SYS_ARCH_PRCTL),
        ctypes.c_long(_ARCH_REQ_XCOMP_PERM),
        ctypes.c_long(_XFEATURE_XTILEDATA),
    )
    if result == 0:
        return None
    code = ctypes.get_errno()
    name = errno.errorcode.get(code, str(code))
    return f"the kernel refused AMX tile permission ({name}: {os.strerror(code).lower()})"
