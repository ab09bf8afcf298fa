"""How engines are built for each CPU class: the compiler flags that matter. Data only."""

from dataclasses import dataclass

from infinity_v3.artifacts.cpu_class import CPU_CLASSES, CpuClass
from infinity_v3.artifacts.manifest import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFlags:
    """What differs between builds.

    Attributes:
        march: `-march` of the model library and of the kernels.
        kernel_flags: further flags of the kernel library.
        capability: the vector instructions that Inductor generates for.
        freeze: fold the weights and repack them for this class; only where the matrix library packs
            differently for it.
    """

    march: str
    kernel_flags: tuple[str, ...] = ()
    capability: str
    freeze: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget:
    """A CPU class and how to build for it. A machine builds only for flags it has itself."""

    cpu: CpuClass
    flags: BuildFlags

    @property
    def name(self) -> str:
        """Name of the class, which is the name of the target."""
        return self.cpu.name

    @property
    def precision(self) -> Precision:
        """Number format of the engine."""
        return self.cpu.precision

    @property
    def isa(self) -> tuple[str, ...]:
        """Flags that a host must show."""
        return self.cpu.isa


_BF16_KERNELS = ("-mavx512bf16", "-mprefer-vector-width=512")
_AMX = ("-mamx-tile", "-mamx-bf16")
_FLAGS = {
    "cpu-x86_64-amx-bf16": BuildFlags(
        march="x86-64-v4", kernel_flags=(*_BF16_KERNELS, *_AMX), capability="amx", freeze=True
    ),
    "cpu-x86_64-avx512-bf16": BuildFlags(
        march="x86-64-v4", kernel_flags=_BF16_KERNELS, capability="avx512", freeze=True
    ),
    "cpu-x86_64-avx512-f32": BuildFlags(
        march="x86-64-v4",
        kernel_flags=("-mprefer-vector-width=512",),
        capability="avx512",
        freeze=False,
    ),
    "cpu-x86_64-avx2-f32": BuildFlags(march="x86-64-v3", capability="avx2", freeze=False),
    # What is not packed for 8-bit products is bfloat16 as in the targets above.
    "cpu-x86_64-amx-int8": BuildFlags(
        march="x86-64-v4",
        kernel_flags=(*_BF16_KERNELS, "-mavx512vnni", *_AMX, "-mamx-int8"),
        capability="amx",
        freeze=True,
    ),
    "cpu-x86_64-avx512-int8": BuildFlags(
        march="x86-64-v4",
        kernel_flags=(*_BF16_KERNELS, "-mavx512vnni"),
        capability="avx512",
        freeze=True,
    ),
}
CPU_TARGETS = tuple(CpuTarget(cpu=cpu, flags=_FLAGS[cpu.name]) for cpu in CPU_CLASSES)
"""Every target of this release, in order of preference."""
