"""What the figures were measured on, and which CPUs the engines get."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path


def choose_cpus(num_threads: int) -> tuple[int, ...]:
    """Pick CPUs of this process, one per physical core before any second hardware thread.

    Raises:
        SystemExit: there are not that many.
    """
    available = sorted(os.sched_getaffinity(0), key=lambda cpu: (_rank_in_core(cpu), cpu))
    if num_threads > len(available):
        raise SystemExit(f"--threads {num_threads}: this process may use {len(available)} CPUs")
    return tuple(sorted(available[:num_threads]))


def describe_machine(**more: object) -> Mapping[str, object]:
    """Facts for the head of a table."""
    facts = _first_cpu()
    flags = facts.get("flags", "").split()
    return {
        "cpu": facts.get("model name", "unknown"),
        "isa": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **more,
    }


def _rank_in_core(cpu: int) -> int:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    if not path.exists():
        return 0
    siblings = path.read_text().strip().replace("-", ",").split(",")
    return int(str(cpu) != siblings[0])


def _first_cpu() -> Mapping[str, str]:
    block = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}
