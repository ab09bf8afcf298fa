"""The classes of CPUs that engines exist for, best first.

Knows nothing of how engines are built.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Precision

NEVER_BY_ITSELF = frozenset({Precision.INT8, Precision.FP8_DYNAMIC})
"""Precisions that give up more than rounding: nobody gets them without asking."""

_AVX2 = ("abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AVX512_BF16 = (*_AVX512, "avx512_bf16")
_AVX512_INT8 = (*_AVX512_BF16, "avx512_vnni")
_AMX_BF16 = (*_AVX512_BF16, "amx_bf16", "amx_tile")
_AMX_INT8 = (*_AVX512_INT8, "amx_bf16", "amx_int8", "amx_tile")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClass:
    """One class; `isa` are the /proc/cpuinfo flags that a host must show."""

    name: str
    precision: Precision
    isa: tuple[str, ...]

    @property
    def is_asked_for(self) -> bool:
        """Whether it is built and run only for those who ask for it by name."""
        return self.precision in NEVER_BY_ITSELF

    def fits(self, host_isa: AbstractSet[str]) -> bool:
        """Whether a host with these flags belongs to the class."""
        return set(self.isa) <= host_isa


CPU_CLASSES = (
    CpuClass(name="cpu-x86_64-amx-bf16", precision=Precision.BFLOAT16, isa=_AMX_BF16),
    CpuClass(name="cpu-x86_64-avx512-bf16", precision=Precision.BFLOAT16, isa=_AVX512_BF16),
    CpuClass(name="cpu-x86_64-avx512-f32", precision=Precision.FLOAT32, isa=_AVX512),
    CpuClass(name="cpu-x86_64-avx2-f32", precision=Precision.FLOAT32, isa=_AVX2),
    CpuClass(name="cpu-x86_64-amx-int8", precision=Precision.INT8, isa=_AMX_INT8),
    CpuClass(name="cpu-x86_64-avx512-int8", precision=Precision.INT8, isa=_AVX512_INT8),
)
"""In the order in which `--dtype auto` prefers them; those that it never takes stand last."""
