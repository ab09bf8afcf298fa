"""Refuses a compile that cannot succeed, before anything long starts. Imports no torch."""

import os
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.publish import existing_output
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.checkpoint import check_source
from infinity_v3.compiler.checkpoint_files import HUB_PATTERNS
from infinity_v3.compiler.hub import fetch_snapshot, is_hub_offline
from infinity_v3.compiler.kernel_cache import check_kernel_cache
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.toolchain import find_obstacles
from infinity_v3.model_specs.decision_evidence import find_protocol
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.registry import match

WITHOUT_WEIGHTS = tuple(name for name in HUB_PATTERNS if not name.endswith(".safetensors"))
"""What of a hub id is fetched to find out whether it can be compiled, and which commit it is."""


def preflight(request: CompileRequest) -> None:
    """Check output, kernel cache, targets and tools.

    Raises:
        UsageError: the output exists, the named kernel cache cannot be written, a target is
            unknown, or this machine lacks a tool; all missing tools at once.
        RefusedError: this host cannot run, and so not verify, what was asked for.
    """
    _check_output(request.out)
    check_kernel_cache(request.kernel_cache)
    runnable_targets(request.targets)
    obstacles = find_obstacles()
    if obstacles:
        raise UsageError(f"cannot compile here: {'; '.join(obstacles)}")


def _check_output(out: Path) -> None:
    # lexists: a dangling link is in the way too.
    if os.path.lexists(out):
        raise existing_output(out)


def check_configuration(request: CompileRequest) -> None:
    """Read the configuration of a checkpoint, so that a wrong one is refused at once.

    Of a hub id everything but the weights, which are most of it, is fetched for that.

    Raises:
        UsageError: there is no such checkpoint, a file is malformed, or the model cannot be
            compiled as asked.
        RunFailedError: a file cannot be read, or the hub cannot be reached and the cache has no
            copy.
    """
    check_source(request)
    path = Path(request.checkpoint).expanduser()
    if not path.is_dir():
        patterns = HUB_PATTERNS if is_hub_offline() else WITHOUT_WEIGHTS
        path = fetch_snapshot(request.checkpoint, request.revision, patterns).path
    find_protocol(path.resolve(), request.decision_protocol)
    config = read_hub_config(path.resolve())
    resolve_kind(config, match(config), request.asked_kind, None)
    _check_tokenizer(config.tokenizer.tokenizer)


def _check_tokenizer(file: Path) -> None:
    from infinity_v3.compiler.tokenizer import open_tokenizer  # compiled code, as it is needed

    open_tokenizer(file)
