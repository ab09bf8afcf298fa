"""What an artifact must have for targets to be added to it. Imports no torch."""

from collections.abc import Sequence

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import KeptProgram, Manifest, Precision
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.cpu_targets import CpuTarget

_REFERENCE = "which new targets are compared with"


def check_retarget(manifest: Manifest, names: Sequence[str]) -> tuple[CpuTarget, ...]:
    """The targets to build, in the order of preference. Builds nothing.

    Raises:
        UsageError: an unknown target, or one that the artifact has.
        RefusedError: this host cannot run, and so not verify, a target; or the artifact does not
            keep the program that it is built from, or the one that it is compared with.
    """
    targets = runnable_targets(names)
    known = {target.name for target in manifest.targets}
    for target in targets:
        if target.name in known:
            raise UsageError(
                f"--target: {target.name} is in {manifest.name} already; name one that is not"
            )
        kept_program(manifest, target.precision, f"which {target.name} is built from")
    reference_program(manifest)
    return targets


def reference_program(manifest: Manifest) -> KeptProgram:
    """The program that new targets are compared with.

    Raises:
        RefusedError: the artifact does not keep it.
    """
    return kept_program(manifest, Precision.FLOAT32, _REFERENCE)


def kept_program(manifest: Manifest, precision: Precision, purpose: str) -> KeptProgram:
    """The kept program of a precision.

    Raises:
        RefusedError: the artifact does not keep it; says what it is for.
    """
    for program in manifest.program:
        if program.precision is precision:
            return program
    kept = ", ".join(program.precision.value for program in manifest.program) or "none"
    raise RefusedError(
        f"{manifest.name} keeps no program of {precision.value}, {purpose}; it keeps {kept}: "
        "compile the checkpoint with --keep-program and a target of that precision"
    )
