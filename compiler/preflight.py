"""Refuses a compile that cannot succeed, before anything long starts. Imports no torch."""

import os
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.publish import existing_output
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.toolchain import find_obstacles


def preflight(request: CompileRequest) -> None:
    """Check output, targets and tools.

    Raises:
        UsageError: the output exists, a target is unknown, or this machine lacks a tool; all
            missing tools at once.
        RefusedError: this host cannot run, and so not verify, what was asked for.
    """
    _check_output(request.out)
    runnable_targets(request.targets)
    obstacles = find_obstacles()
    if obstacles:
        raise UsageError(f"cannot compile here: {'; '.join(obstacles)}")


def _check_output(out: Path) -> None:
    # lexists: a dangling link is in the way too.
    if os.path.lexists(out):
        raise existing_output(out)
