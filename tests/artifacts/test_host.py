"""Host detection on simulated machines, and on this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_v3.artifacts.host import HostCapabilities, HostProbe, detect_host
from infinity_v3.artifacts.torch_install import (
    TorchInstall,
    find_torch,
    minor_of,
    read_torch_install,
)

SAPPHIRE_RAPIDS = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags\t\t: fpu sse2 avx2 fma avx512f avx512_bf16 amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: another core
flags\t\t: fpu
"""
HASWELL = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) CPU E5-2680 v3
flags\t\t: fpu sse2 AVX2 fma
"""
GRAVITON = """\
processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd sve bf16
CPU part\t: 0xd40
"""
TORCH = TorchInstall(version="2.13.0+cpu", lib_dir=Path("/torch/lib"))


class SimulatedProbe(HostProbe):
    """A machine made of constants."""

    def __init__(
        self,
        cpuinfo: str,
        *,
        arch: str = "x86_64",
        refusal: str | None = None,
        torch: TorchInstall | None = TORCH,
    ) -> None:
        self._facts = (cpuinfo, arch, refusal, torch)
        self.num_requests = 0

    def cpuinfo(self) -> str:
        return self._facts[0]

    def arch(self) -> str:
        return self._facts[1]

    def amx_refusal(self) -> str | None:
        self.num_requests += 1
        return self._facts[2]

    def torch(self) -> TorchInstall | None:
        return self._facts[3]

    def num_cpus(self) -> int:
        return 4


def test_facts_of_the_first_cpu() -> None:
    assert detect_host(SimulatedProbe(SAPPHIRE_RAPIDS)) == HostCapabilities(
        arch="x86_64",
        isa=frozenset(
            {"fpu", "sse2", "avx2", "fma", "avx512f", "avx512_bf16"}
            | {"amx_bf16", "amx_tile", "amx_int8"}
        ),
        torch_version="2.13.0+cpu",
        torch_lib_dir=Path("/torch/lib"),
        cpu_model="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        num_cpus=4,
    )


def test_amx_is_dropped_with_the_kernels_reason() -> None:
    host = detect_host(SimulatedProbe(SAPPHIRE_RAPIDS, refusal="the kernel said no"))

    assert host.isa == {"fpu", "sse2", "avx2", "fma", "avx512f", "avx512_bf16"}
    assert host.dropped_isa == dict.fromkeys(
        ("amx_bf16", "amx_int8", "amx_tile"), "the kernel said no"
    )


def test_kernel_is_not_asked_on_a_cpu_without_amx() -> None:
    probe = SimulatedProbe(HASWELL, refusal="never used")
    host = detect_host(probe)

    assert probe.num_requests == 0
    assert host.isa == {"fpu", "sse2", "avx2", "fma"}
    assert host.dropped_isa == {}


@pytest.mark.parametrize(
    ("machine", "arch"),
    [("x86_64", "x86_64"), ("AMD64", "x86_64"), ("aarch64", "aarch64"), ("arm64", "aarch64")],
)
def test_arch_has_one_spelling(machine: str, arch: str) -> None:
    assert detect_host(SimulatedProbe(HASWELL, arch=machine)).arch == arch


def test_arm_features_are_flags() -> None:
    host = detect_host(SimulatedProbe(GRAVITON, arch="aarch64"))

    assert host.isa == {"fp", "asimd", "sve", "bf16"}
    assert host.cpu_model == "0xd40"


@pytest.mark.parametrize("cpuinfo", ["", "garbage", "flags", "flags\t:\n"])
def test_unreadable_cpuinfo_offers_nothing(cpuinfo: str) -> None:
    host = detect_host(SimulatedProbe(cpuinfo))

    assert host.isa == frozenset()
    assert host.cpu_model == "unknown CPU"


def test_host_without_torch() -> None:
    host = detect_host(SimulatedProbe(HASWELL, torch=None))

    assert (host.torch_version, host.torch_minor, host.torch_lib_dir) == (None, None, None)


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("2.13.0+cpu", "2.13"),
        ("2.14.0a0+git1234", "2.14"),
        ("10.2", "10.2"),
        ("unknown", None),
        ("", None),
    ],
)
def test_minor_of_a_version(version: str, minor: str | None) -> None:
    assert minor_of(version) == minor


def test_torch_package_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("__all__ = []\n__version__ = '2.12.1+cu130'\nraise\n")
    assert read_torch_install(tmp_path) == TorchInstall(version="2.12.1+cu130", lib_dir=None)

    (tmp_path / "lib").mkdir()
    found = read_torch_install(tmp_path)
    assert found is not None
    assert found.lib_dir == tmp_path / "lib"


@pytest.mark.parametrize("text", [None, "", "version = 1", "\xff"])
def test_broken_torch_package_is_no_torch(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "version.py").write_text(text, encoding="latin-1")

    assert read_torch_install(tmp_path) is None


def test_installed_torch_is_found_without_importing_it() -> None:
    script = (
        "import sys\n"
        "from infinity_v3.artifacts.host import detect_host\n"
        "host = detect_host()\n"
        "assert 'torch' not in sys.modules\n"
        "print(host.torch_version, (host.torch_lib_dir / 'libc10.so').exists())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    installed = find_torch()

    assert installed is not None
    assert result.stdout.split() == [installed.version, "True"]


def test_this_host_agrees_with_the_kernel() -> None:
    host = detect_host()

    assert host.arch == os.uname().machine
    assert host.num_cpus == len(os.sched_getaffinity(0))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="AMX is an x86-64 feature")
def test_tile_permission_is_decided_by_the_kernel() -> None:
    refusal = HostProbe().amx_refusal()
    has_amx = "amx_tile" in HostProbe().cpuinfo()

    assert has_amx or (refusal is not None and "refused AMX tile permission" in refusal)


def test_affinity_limits_the_cpus() -> None:
    script = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from infinity_v3.artifacts.host import detect_host\n"
        "print(detect_host().num_cpus)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert result.stdout == "1\n"
