"""Which targets this host can build and run, with the reasons where it cannot. Builds nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities, detect_host
from infinity_v3.artifacts.manifest import Precision, Requirements
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.artifacts.target import unmet_requirement
from infinity_v3.compiler.cpu_targets import CPU_TARGETS, CpuTarget
from infinity_v3.compiler.toolchain import CxxCompiler, accepts_flags, find_cxx, find_obstacles

CPU_ARCH = "x86_64"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAvailability:
    """What this host can do with a target.

    Attributes:
        cannot_run: first thing that the host lacks to run it; None = it runs here.
        cannot_build: everything that keeps it from being built; a target is built only where it
            can be verified, so what cannot run is not built either.
    """

    name: str
    precision: Precision
    cannot_run: str | None
    cannot_build: tuple[str, ...]


def list_availability() -> tuple[TargetAvailability, ...]:
    """Look at every CPU target in the order of preference."""
    host = detect_host()
    obstacles = find_obstacles()
    compiler = find_cxx()
    return tuple(_availability(target, host, obstacles, compiler) for target in CPU_TARGETS)


def runnable_targets(names: Sequence[str]) -> tuple[CpuTarget, ...]:
    """Resolve target names to the targets to build, in the order of preference.

    Args:
        names: names of targets; empty = every target that this host can run, and so verify, but
            for those that are only built for who asks for them.

    Raises:
        UsageError: an unknown name.
        RefusedError: a named target that this host cannot run, or no target at all that it can.
    """
    known = {target.name: target for target in CPU_TARGETS}
    for name in names:
        if name not in known:
            raise UsageError(
                f"--target: unknown target {name!r}{nearest(name, known)}; "
                f"this release builds {', '.join(known)}"
            )
    host = detect_host()
    lacking = {target.name: _cannot_run(target, host) for target in CPU_TARGETS}
    if names:
        _refuse_first({name: lacking[name] for name in names})
    elif all(lacking.values()):
        reasons = "; ".join(f"{name} {reason}" for name, reason in lacking.items())
        raise RefusedError(f"this host can run no target, so none can be verified: {reasons}")
    chosen = names or [
        name
        for name, reason in lacking.items()
        if reason is None and not known[name].cpu.is_asked_for
    ]
    return tuple(target for target in CPU_TARGETS if target.name in chosen)


def _refuse_first(lacking: dict[str, str | None]) -> None:
    for name, reason in lacking.items():
        if reason is not None:
            raise RefusedError(
                f"--target: {name} {reason}; a target is built only where it can be verified: "
                "compile on a host that runs it, or leave it out"
            )


def _availability(
    target: CpuTarget,
    host: HostCapabilities,
    obstacles: tuple[str, ...],
    compiler: CxxCompiler | None,
) -> TargetAvailability:
    cannot_run = _cannot_run(target, host)
    reasons = [*obstacles]
    if cannot_run is not None:
        reasons.insert(0, cannot_run)
    if compiler is not None and not accepts_flags(compiler.command, _flags(target)):
        reasons.append(
            f"{compiler.version} does not know {' '.join(_flags(target))}; install g++ 12 or newer"
        )
    return TargetAvailability(
        name=target.name,
        precision=target.precision,
        cannot_run=cannot_run,
        cannot_build=tuple(reasons),
    )


def _cannot_run(target: CpuTarget, host: HostCapabilities) -> str | None:
    # The torch minor is the one that would build it, so it is no requirement yet.
    return unmet_requirement(Requirements(arch=CPU_ARCH, isa=target.isa), host)


def _flags(target: CpuTarget) -> tuple[str, ...]:
    return (f"-march={target.flags.march}", *target.flags.kernel_flags)
