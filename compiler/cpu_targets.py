"""The CPU classes that engines are built for, and the compiler flags of each. Data only."""

from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Precision

_AVX2 = ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AVX512_BF16 = (*_AVX512, "avx512_bf16")
_AMX_BF16 = (*_AVX512_BF16, "amx_bf16", "amx_tile")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget:
    """One CPU class.

    Attributes:
        isa: /proc/cpuinfo flags a host must show; a machine builds only for flags it has itself.
        march: `-march` of the model library and of the kernels.
        kernel_flags: further flags of the kernel library.
        capability: the vector width that Inductor generates for, in ATen's words.
        freeze: fold and repack the weights for this class; only where the matrix library's packed layout belongs to it.
    """

    name: str
    precision: Precision
    isa: tuple[str, ...]
    march: str
    kernel_flags: tuple[str, ...] = ()
    capability: str
    freeze: bool


CPU_TARGETS = (
    CpuTarget(
        name="cpu-x86_64-amx-bf16",
        precision=Precision.BFLOAT16,
        isa=_AMX_BF16,
        march="x86-64-v4",
        kernel_flags=("-mavx512bf16", "-mprefer-vector-width=512"),
        capability="amx",
        freeze=True,
    ),
    CpuTarget(
        name="cpu-x86_64-avx512-bf16",
        precision=Precision.BFLOAT16,
        isa=_AVX512_BF16,
        march="x86-64-v4",
        kernel_flags=("-mavx512bf16", "-mprefer-vector-width=512"),
        capability="avx512",
        freeze=True,
    ),
    CpuTarget(
        name="cpu-x86_64-avx512-f32",
        precision=Precision.FLOAT32,
        isa=_AVX512,
        march="x86-64-v4",
        kernel_flags=("-mprefer-vector-width=512",),
        capability="avx512",
        freeze=False,
    ),
    CpuTarget(
        name="cpu-x86_64-avx2-f32",
        precision=Precision.FLOAT32,
        isa=_AVX2,
        march="x86-64-v3",
        capability="avx2",
        freeze=False,
    ),
)
