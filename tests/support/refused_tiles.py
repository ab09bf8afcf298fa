"""A process whose system refuses it the tiles of the matrix unit, and kernels that use them in it.

Linux refuses them to a process with an alternate signal stack that cannot hold their contents.
"""

import ctypes
import sys
from pathlib import Path

_SMALL_STACK_BYTES = 8192
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


class _SignalStack(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    )


def refuse_tiles() -> ctypes.Array[ctypes.c_char]:
    """Set a small signal stack; it must live as long as the process.

    Raises:
        OSError: the stack was not taken, or the tiles are allowed all the same.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(_SMALL_STACK_BYTES)
    stack = _SignalStack(ctypes.addressof(memory), 0, _SMALL_STACK_BYTES)
    if libc.sigaltstack(ctypes.byref(stack), None) != 0:
        raise OSError(ctypes.get_errno(), "sigaltstack")
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0:
        raise OSError("expected Linux to refuse the tiles, it allows them")
    return memory


def main() -> None:
    """Write what the AMX target's kernels make of q, k and v, and of rows: CACHE INPUT OUTPUT."""
    stack = refuse_tiles()
    import torch

    from infinity_v3.compiler.cpu_targets import CPU_TARGETS
    from kernel_calls import Kernels

    cache, given, written = (Path(argument) for argument in sys.argv[1:])
    kernels = Kernels(CPU_TARGETS[0], cache)
    qkv, lengths, rows, up, down = torch.load(given)
    torch.save((kernels.attention(qkv, lengths), kernels.bf16_mlp(rows, up, down)), written)
    del stack


if __name__ == "__main__":
    main()
