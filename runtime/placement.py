"""Which CPUs each engine replica runs on. Knows nothing of engines."""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.profile import TargetProfile
from infinity_v3.runtime.team import TeamSizes

TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Engine replicas and their threads.

    Attributes:
        num_threads: of one replica.
        cpus: of each replica, disjoint; a single replica has none of its own and is not pinned.
        spared_threads: of a call that leaves a CPU to the event loop; None = it has one anyway, or
            no call could do with less.
        notes: one sentence for what was measured and does not fit this host.
    """

    num_threads: int
    cpus: tuple[frozenset[int], ...] = (frozenset(),)
    spared_threads: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_replicas(self) -> int:
        return len(self.cpus)

    @property
    def team(self) -> TeamSizes | None:
        """What engine calls can choose from; None = there is no choice."""
        if self.spared_threads is None:
            return None
        return TeamSizes(whole=self.num_threads, spared=self.spared_threads)


_UNMEASURED = TargetProfile()


def place(
    num_replicas: int | None, num_threads: int | None, measured: TargetProfile = _UNMEASURED
) -> Placement:
    """Give each replica CPUs of its own, out of those that this process may use.

    Args:
        num_replicas: at least 1, as the user wants it; None = open.
        num_threads: of one replica, as the user wants it; None = open. A single one gets no more
            than there are CPUs.
        measured: what was best for the target; taken for what is open, as far as it goes together
            with what is not.

    Raises:
        UsageError: several replicas need more CPUs than there are.
    """
    available = os.sched_getaffinity(0)
    best = measured.num_replicas or 1
    fits = best * (measured.num_threads or 1) <= len(available)
    is_open = num_replicas is None and num_threads is None
    replicas = num_replicas or (best if is_open and fits else 1)
    taken = measured.num_threads if fits and replicas == best else None
    threads = num_threads or taken or max(1, len(available) // replicas)
    if replicas > 1:
        return Placement(num_threads=threads, cpus=_share_out(replicas, threads, available))
    if threads > len(available):
        note = _all_cpus(threads, "asked for", len(available))
        return _single(len(available), len(available), (note,))
    gives_way = not fits and num_threads is None and (is_open or best == 1)
    notes = (_too_few_cpus(measured, len(available)),) if gives_way else ()
    return _single(threads, len(available), notes)


def _single(threads: int, num_cpus: int, notes: tuple[str, ...]) -> Placement:
    spared = threads - 1 if threads == num_cpus and threads > 1 else None
    return Placement(num_threads=threads, spared_threads=spared, notes=notes)


def _all_cpus(num_threads: int, origin: str, num_cpus: int) -> str:
    return (
        f"all CPUs are used, as the {num_threads} threads that were {origin} need more than the "
        f"{num_cpus} CPUs of this process"
    )


def _too_few_cpus(measured: TargetProfile, num_cpus: int) -> str:
    if (measured.num_replicas or 1) == 1:
        return _all_cpus(measured.num_threads or 1, "measured", num_cpus)
    return (
        f"one replica, as the {measured.num_replicas} of {measured.num_threads} threads that were "
        f"measured need more than the {num_cpus} CPUs of this process"
    )


def _share_out(
    num_replicas: int, threads: int, available: Collection[int]
) -> tuple[frozenset[int], ...]:
    if num_replicas * threads > len(available):
        raise UsageError(
            f"--cpu-replicas {num_replicas} with {threads} threads each: expected no more than the "
            f"{len(available)} CPUs of this process, as replicas are pinned; lower "
            "--cpu-replicas or --cpu-threads-per-replica"
        )
    ordered = in_order(available, read_cores(available))
    return tuple(
        frozenset(ordered[first : first + threads])
        for first in range(0, num_replicas * threads, threads)
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
