"""The classes of CPUs that engines exist for, best first.

Knows nothing of how engines are built.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Precision

_AVX2 = ("abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AVX512_BF16 = (*_AVX512, "avx512_bf16")
_AMX_BF16 = (*_AVX512_BF16, "amx_bf16", "amx_tile")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClass:
    """One class; `isa` are the /proc/cpuinfo flags that a host must show."""

    name: str
    precision: Precision
    isa: tuple[str, ...]

    def fits(self, host_isa: AbstractSet[str]) -> bool:
        """Whether a host with these flags belongs to the class."""
        return set(self.isa) <= host_isa


CPU_CLASSES = (
    CpuClass(name="cpu-x86_64-amx-bf16", precision=Precision.BFLOAT16, isa=_AMX_BF16),
    CpuClass(name="cpu-x86_64-avx512-bf16", precision=Precision.BFLOAT16, isa=_AVX512_BF16),
    CpuClass(name="cpu-x86_64-avx512-f32", precision=Precision.FLOAT32, isa=_AVX512),
    CpuClass(name="cpu-x86_64-avx2-f32", precision=Precision.FLOAT32, isa=_AVX2),
)
"""In the order in which `--dtype auto` prefers them."""
