"""What each command of `infinity-compile` does. Results go to stdout, everything else to stderr.

Knows nothing of how arguments are spelled. Heavy modules are imported by the command that needs
them.
"""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.progress import Progress, choose_progress
from infinity_v3.compiler.registry.place import RegistryPlace
from infinity_v3.compiler.registry.target import artifact_path

if TYPE_CHECKING:
    from infinity_v3.compiler.parity import ParityReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArguments:
    """What the command line of `model` said; `flags` holds only the options that were given."""

    flags: Mapping[str, tuple[str, ...]]
    config: Path | None
    is_json: bool


def run_model(arguments: ModelArguments) -> None:
    """Compile a checkpoint into a verified artifact and print where it is.

    Raises:
        InfinityError: nothing was published.
    """
    from infinity_v3.compiler.config_sources import resolve_request
    from infinity_v3.compiler.disk_full import full_disk_as_one_sentence
    from infinity_v3.compiler.preflight import check_configuration, preflight

    resolved = resolve_request(flags=arguments.flags, environ=os.environ, config=arguments.config)
    progress = _progress(arguments.is_json)
    for warning in resolved.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    preflight(resolved.request)
    _silence_libraries()
    with full_disk_as_one_sentence(resolved.request.out):
        check_configuration(resolved.request)
    _make_no_cache()
    # The pipeline imports torch, which takes seconds; a refusal above should not.
    with progress.stage("load torch"):
        from infinity_v3.compiler.pipeline import compile_model

    with full_disk_as_one_sentence(resolved.request.out):
        artifact = compile_model(resolved.request, progress)
    progress.finish()
    _print(_compiled(artifact, progress), _compiled_text(artifact), is_json=arguments.is_json)


def run_inspect(artifact: str, place: RegistryPlace, *, is_json: bool) -> None:
    """Print what an artifact is and what this host can do with it.

    Args:
        artifact: the directory of one, or a reference.
        place: the registry that a reference is looked up in.
        is_json: one JSON document instead of a table.

    Raises:
        RefusedError: not a whole artifact, or no such reference.
        UsageError: there is nothing at the path.
    """
    from infinity_v3.artifacts.host import detect_host
    from infinity_v3.compiler.inspection import (
        inspect_artifact,
        inspection_to_json,
        inspection_to_text,
    )

    path = artifact_path(artifact, place, _progress(is_json))
    # Nothing of it is loaded, so it does not matter who else can write to it.
    opened = open_artifact(path, allow_shared=True)
    inspection = inspect_artifact(opened, detect_host())
    _print(inspection_to_json(inspection), inspection_to_text(inspection), is_json=is_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyArguments:
    """What the command line of `verify` said; `artifact` is a directory or a reference."""

    artifact: str
    place: RegistryPlace
    checkpoint: Path | None
    allow_shared: bool
    is_json: bool


def run_verify(arguments: VerifyArguments) -> None:
    """Hash every file again, then run every target this host can run against the reference.

    Raises:
        RefusedError: a file differs from the manifest or breaks its own format, or a target is out
            of tolerance.
        UsageError: there is no artifact, the checkpoint is no directory, or the compile extra is
            missing.
    """
    from infinity_v3.compiler.inspection import read_records
    from infinity_v3.compiler.toolchain import find_reference_obstacles

    checkpoint = arguments.checkpoint
    if checkpoint is not None and not checkpoint.is_dir():
        raise UsageError(
            f"--checkpoint: {checkpoint} is no directory; give the checkpoint's directory"
        )
    progress = _progress(arguments.is_json)
    path = artifact_path(arguments.artifact, arguments.place, progress)
    with progress.stage("check digests"):
        artifact = open_artifact(
            path, digests=DigestPolicy.ALWAYS, allow_shared=arguments.allow_shared
        )
        read_records(artifact)
    obstacles = find_reference_obstacles()
    if obstacles:
        raise UsageError(
            f"every digest matches, but engines cannot be checked here: {'; '.join(obstacles)}"
        )
    _silence_libraries()
    _make_no_cache()
    from infinity_v3.compiler.verify import verify_artifact

    reports = verify_artifact(artifact, checkpoint, progress)
    progress.finish()
    document = {"id": artifact.artifact_id, "targets": [asdict(report) for report in reports]}
    _print(document, _verified_text(artifact, reports), is_json=arguments.is_json)


def run_targets(*, is_json: bool) -> None:
    """Print which targets this host can build and run, with reasons."""
    from infinity_v3.compiler.availability import list_availability

    rows = list_availability()
    document = {
        "targets": [
            {
                "name": row.name,
                "precision": row.precision.value,
                "runs": row.cannot_run is None,
                "builds": not row.cannot_build,
                "reasons": list(row.cannot_build),
            }
            for row in rows
        ]
    }
    width = max(len(row.name) for row in rows)
    lines = [f"{'target':<{width}}  runs  builds  why not"]
    common = _common(row.cannot_build for row in rows)
    for row in rows:
        runs, builds = _yes(row.cannot_run is None), _yes(not row.cannot_build)
        reasons = "; ".join(reason for reason in row.cannot_build if reason not in common)
        lines.append(f"{row.name:<{width}}  {runs:<4}  {builds:<6}  {reasons}".rstrip())
    lines.extend(f"none builds: {reason}" for reason in common)
    _print(document, "\n".join(lines) + "\n", is_json=is_json)


def _common(reasons: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Reasons that hold for every target, to be said once."""
    first, *others = reasons
    return tuple(reason for reason in first if all(reason in other for other in others))


def _silence_libraries() -> None:
    # Deprecations inside torch and transformers are nothing a user can act on; -W shows them.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def _make_no_cache() -> None:
    # Importing torch's compiler makes a folder for a cache, which builds do not use: they have
    # one of their own. A folder that is there already does.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())


def _progress(is_json: bool) -> Progress:
    return choose_progress(sys.stderr, is_silent=is_json, terminal=os.environ.get("TERM", ""))


def _compiled(artifact: Artifact, progress: Progress) -> dict[str, object]:
    return {
        "id": artifact.artifact_id,
        "name": artifact.manifest.name,
        "path": str(artifact.path),
        "targets": [target.name for target in artifact.manifest.targets],
        "stages": [
            {"stage": entry.name, "depth": entry.depth, "seconds": round(entry.duration_s, 3)}
            for entry in progress.times()
        ],
    }


def _compiled_text(artifact: Artifact) -> str:
    targets = ", ".join(target.name for target in artifact.manifest.targets)
    return f"{artifact.path}\n  {artifact.artifact_id}\n  {targets}\n"


def _verified_text(artifact: Artifact, reports: "Sequence[ParityReport]") -> str:
    lines = [f"{artifact.artifact_id}: every digest matches"]
    for report in reports:
        lines.append(
            f"{report.target}: passed on {report.probe_count} probes, reference {report.reference}"
        )
        lines.extend(f"  {name:<24} {value:.6g}" for name, value in report.figures.items())
    verified = {report.target for report in reports}
    lines.extend(
        f"{target.name}: not run on this host"
        for target in artifact.manifest.targets
        if target.name not in verified
    )
    return "\n".join(lines) + "\n"


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"


def _print(document: Mapping[str, object], text: str, *, is_json: bool) -> None:
    # Escaped, because names of files need not be Unicode, and JSON has to be.
    sys.stdout.write(json.dumps(document) + "\n" if is_json else text)
