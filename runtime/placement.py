"""Which CPUs each engine replica runs on. Knows nothing of engines."""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError

TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Engine replicas and their threads.

    Attributes:
        num_threads: of one replica.
        cpus: of each replica, disjoint; a single replica has none of its own and is not pinned.
    """

    num_threads: int
    cpus: tuple[frozenset[int], ...] = (frozenset(),)

    @property
    def num_replicas(self) -> int:
        return len(self.cpus)


def place(
    num_replicas: int, num_threads: int | None, measured_threads: int | None = None
) -> Placement:
    """Give each replica CPUs of its own, out of those that this process may use.

    Args:
        num_replicas: at least 1.
        num_threads: of one replica, as the user wants it; None = open.
        measured_threads: what was measured to be best for one replica alone.

    Raises:
        UsageError: several replicas need more CPUs than there are.
    """
    available = os.sched_getaffinity(0)
    if num_replicas == 1:
        return Placement(num_threads=num_threads or measured_threads or len(available))
    threads = num_threads or max(1, len(available) // num_replicas)
    if num_replicas * threads > len(available):
        raise UsageError(
            f"--cpu-replicas {num_replicas} with {threads} threads each: expected no more than the "
            f"{len(available)} CPUs of this process, as replicas are pinned; lower "
            "--cpu-replicas or --cpu-threads-per-replica"
        )
    ordered = in_order(available, read_cores(available))
    return Placement(
        num_threads=threads,
        cpus=tuple(
            frozenset(ordered[first : first + threads])
            for first in range(0, num_replicas * threads, threads)
        ),
    )


def in_order(cpus: Collection[int], cores: Mapping[int, tuple[int, int]]) -> list[int]:
    """Put CPUs of one socket side by side, and second threads of a core behind all first ones.

    Args:
        cpus: their numbers.
        cores: (socket, core) by CPU.
    """
    earlier: dict[tuple[int, int], int] = defaultdict(int)
    keys = {}
    for cpu in sorted(cpus):
        core = cores[cpu]
        keys[cpu] = (earlier[core], core, cpu)
        earlier[core] += 1
    return sorted(cpus, key=keys.__getitem__)


def read_cores(cpus: Collection[int], root: Path = TOPOLOGY) -> dict[int, tuple[int, int]]:
    """Which (socket, core) each CPU is; where the system does not say, each is a core."""
    return {
        cpu: (
            _read(root / f"cpu{cpu}/topology/physical_package_id", 0),
            _read(root / f"cpu{cpu}/topology/core_id", cpu),
        )
        for cpu in cpus
    }


def _read(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise
