"""What this host offers to an engine: CPU, instruction set, torch. Knows nothing of artifacts.

Detection reads files and asks the kernel; it imports neither torch nor any engine.
"""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infinity_v3.artifacts.amx import request_amx_tiles
from infinity_v3.artifacts.manifest import Backend, Device
from infinity_v3.artifacts.torch_install import TorchInstall, find_torch, minor_of

_ARCH_ALIASES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}
_FLAG_KEYS = ("flags", "features")
_MODEL_KEYS = ("model name", "cpu model", "cpu part")
_AMX_PREFIX = "amx_"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCapabilities:
    """A host as target selection sees it."""

    arch: str
    """Machine type: "x86_64", "aarch64", ..."""
    isa: frozenset[str]
    """CPU flags as /proc/cpuinfo spells them, lower case, less those that may not be used."""
    dropped_isa: Mapping[str, str] = field(default_factory=dict)
    """Flags that the CPU has and this process may not use, with the reason."""
    torch_version: str | None = None
    """Full version ("2.13.0+cpu"); None when torch is not installed."""
    torch_lib_dir: Path | None = None
    """Folder of libtorch_cpu.so."""
    cpu_model: str = "unknown CPU"
    num_cpus: int = 1
    """CPUs that this process may run on."""
    devices: frozenset[Device] = frozenset({Device.CPU})
    """Devices that this release can run engines on."""
    backends: frozenset[Backend] = frozenset({Backend.AOTI})
    """Engine formats that this release can load."""

    @property
    def torch_minor(self) -> str | None:
        """The minor that engines are bound to ("2.13"), or None when torch is not installed."""
        return minor_of(self.torch_version) if self.torch_version is not None else None


class HostProbe:
    """Where the facts come from; a subclass simulates another host."""

    def arch(self) -> str:
        """Return the machine name of the kernel."""
        return platform.machine()

    def cpuinfo(self) -> str:
        """Return the text of /proc/cpuinfo, empty where there is none."""
        try:
            return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def amx_refusal(self) -> str | None:
        """Ask for AMX tiles; return why they may not be used, or None."""
        if sys.platform != "linux":
            return "AMX tiles are supported on Linux only"
        return request_amx_tiles()

    def torch(self) -> TorchInstall | None:
        """Return the installed torch."""
        return find_torch()

    def num_cpus(self) -> int:
        """Return how many CPUs the process may run on."""
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def detect_host(probe: HostProbe | None = None) -> HostCapabilities:
    """Find out what this host offers.

    On x86-64 with AMX this asks the kernel for tile permission, which then holds for the process.
    """
    probe = probe or HostProbe()
    machine = probe.arch().lower()
    facts = _first_cpu(probe.cpuinfo())
    isa = frozenset(_first_of(facts, _FLAG_KEYS, "").lower().split())
    dropped = _refused_amx(isa, probe)
    torch = probe.torch()
    return HostCapabilities(
        arch=_ARCH_ALIASES.get(machine, machine),
        isa=isa - dropped.keys(),
        dropped_isa=dropped,
        torch_version=torch.version if torch else None,
        torch_lib_dir=torch.lib_dir if torch else None,
        cpu_model=_first_of(facts, _MODEL_KEYS, "unknown CPU"),
        num_cpus=probe.num_cpus(),
    )


def _first_cpu(cpuinfo: str) -> Mapping[str, str]:
    facts: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts.setdefault(key.strip().lower(), value.strip())
    return facts


def _first_of(facts: Mapping[str, str], keys: tuple[str, ...], default: str) -> str:
    return next((facts[key] for key in keys if facts.get(key)), default)


def _refused_amx(isa: frozenset[str], probe: HostProbe) -> dict[str, str]:
    amx = sorted(flag for flag in isa if flag.startswith(_AMX_PREFIX))
    reason = probe.amx_refusal() if amx else None
    return dict.fromkeys(amx, reason) if reason is not None else {}
