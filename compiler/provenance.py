"""Which tools made an artifact and on what machine. Imports none of the tools it names."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from infinity_v3.artifacts.manifest import Provenance
from infinity_v3.compiler.progress import StageTime
from infinity_v3.compiler.toolchain import find_cxx, package_version

UNKNOWN = "unknown"
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The machine that compiled; for build.json, outside the artifact's identity."""

    cpu_model: str
    num_cpus: int
    system: str
    python: str


def collect_provenance(*, kernel_abi: str, flags: Sequence[str]) -> Provenance:
    """Return the versions of everything that shapes an engine's code.

    Args:
        kernel_abi: version of our operators' signatures.
        flags: compiler flags that change code, in the order they are passed.
    """
    compiler = find_cxx()
    return Provenance(
        infinity_v3=tool_version(),
        torch=package_version("torch") or UNKNOWN,
        transformers=package_version("transformers") or UNKNOWN,
        compiler=UNKNOWN if compiler is None else compiler.version,
        tensorrt=None,
        kernel_abi=kernel_abi,
        flags=tuple(flags),
    )


def tool_version() -> str:
    """Return the version of infinity_v3."""
    return package_version("infinity-v3") or UNKNOWN


def host_facts() -> HostFacts:
    """Return facts of this machine."""
    return HostFacts(
        cpu_model=_cpu_model(CPUINFO),
        num_cpus=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
    )


def build_record(
    *,
    times: Sequence[StageTime],
    labels: Mapping[str, str],
    warnings: Sequence[str],
    now: datetime | None = None,
) -> dict[str, object]:
    """Return the keys of build.json that do not depend on what was built.

    Args:
        times: finished stages.
        labels: the request's labels.
        warnings: what the user was told.
        now: end of the build; None = the current time.
    """
    host = host_facts()
    built_at = (now or datetime.now(timezone.utc)).astimezone(timezone.utc)
    return {
        "built_at": built_at.isoformat(timespec="seconds"),
        "times": [
            {"stage": entry.name, "depth": entry.depth, "seconds": round(entry.duration_s, 3)}
            for entry in times
        ],
        "host": {
            "cpu_model": host.cpu_model,
            "num_cpus": host.num_cpus,
            "system": host.system,
            "python": host.python,
        },
        "labels": dict(sorted(labels.items())),
        "warnings": list(warnings),
    }


def _cpu_model(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return UNKNOWN
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return UNKNOWN
