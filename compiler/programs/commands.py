"""`infinity-compile retarget`, `merge` and `upgrade`: arguments and what they print.

Knows nothing of how targets are added, joined or carried over.
"""

from pathlib import Path

import click

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.commands import (
    compiled_document,
    compiled_text,
    make_no_cache,
    silence_libraries,
)
from infinity_v3.compiler.disk_full import full_disk_as_one_sentence
from infinity_v3.compiler.options import compile_options, parse_texts
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options
from infinity_v3.compiler.registry.target import artifact_path
from infinity_v3.compiler.request import CompileRequest

_OUT = click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of the new artifact; an existing one is never overwritten.",
)


@click.command()
@click.argument("artifact")
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    help="Engine to add; repeat for several.",
)
@_OUT
@click.option(
    "--kernel-cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where built kernel libraries are kept. [default: $XDG_CACHE_HOME/infinity_v3/kernels]",
)
@click.option(
    "--embed-limit-mb",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    metavar="MB",
    help="Weights up to this size are embedded in each engine; those that ARTIFACT shares stay "
    "shared.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Threads to compile with. [default: all CPUs this process may use]",
)
@click.option(
    "--allow-shared-artifacts",
    "allow_shared",
    is_flag=True,
    help="Load native code that other users own or can write to.",
)
@registry_options
@json_option
def retarget(  # noqa: PLR0913 - one parameter per option
    place: RegistryPlace,
    artifact: str,
    targets: tuple[str, ...],
    out: Path,
    kernel_cache: Path | None,
    embed_limit_mb: int,
    threads: int | None,
    allow_shared: bool,
    is_json: bool,
) -> None:
    """Add engines to ARTIFACT from the programs that it keeps, without its checkpoint.

    ARTIFACT, a directory or a reference into a registry, was compiled with --keep-program. It stays
    as it is; DIR holds its engines, byte for byte, and the new ones, which are compared with the
    kept program of float32.
    """
    request = CompileRequest(  # checks the values as a compile does
        checkpoint=artifact,
        out=out,
        targets=targets,
        kernel_cache=kernel_cache,
        embed_limit_mb=embed_limit_mb,
        threads=threads,
    )
    progress = progress_of(is_json=is_json)
    opened = _opened(artifact, place, progress, allow_shared=allow_shared)
    _print(_retargeted(opened, request, progress), progress, is_json=is_json)


@click.command()
@click.argument("artifacts", nargs=-1, required=True)
@_OUT
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Free note kept in build.json; decides where the artifacts' own differ.",
)
@registry_options
@json_option
def merge(
    place: RegistryPlace,
    artifacts: tuple[str, ...],
    out: Path,
    labels: tuple[str, ...],
    is_json: bool,
) -> None:
    """Join the engines of ARTIFACTS, built of one checkpoint with the same options, into one.

    Each is a directory or a reference into a registry. Nothing is built or run: engines keep their
    bytes and verdicts. Artifacts that differ in what the model is are refused.
    """
    if len(artifacts) < 2:
        raise UsageError(f"expected two artifacts or more, found {len(artifacts)}")
    from infinity_v3.compiler.programs.merge import MergeRequest, merge_artifacts

    checked = CompileRequest(checkpoint=artifacts[0], out=out, labels=_pairs(labels))
    progress = progress_of(is_json=is_json)
    opened = [_opened(text, place, progress, allow_shared=True) for text in artifacts]
    request = MergeRequest(out=checked.out, labels=checked.labels)
    with full_disk_as_one_sentence(out):
        merged = merge_artifacts(opened, request, progress)
    _print(merged, progress, is_json=is_json)


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@json_option
def upgrade(old: Path, new: Path, is_json: bool) -> None:
    """Carry the artifact OLD of an earlier format over into this release's, as NEW.

    OLD stays as it is. Needs no network and no checkpoint.
    """
    from infinity_v3.compiler.programs.upgrade import upgrade_artifact

    if not old.exists():
        raise UsageError(f"{old}: no such artifact; give the directory of one")
    progress = progress_of(is_json=is_json)
    with full_disk_as_one_sentence(new):
        artifact = upgrade_artifact(old, new, progress)
    _print(artifact, progress, is_json=is_json)


def _retargeted(artifact: Artifact, request: CompileRequest, progress: Progress) -> Artifact:
    from infinity_v3.compiler.preflight import preflight
    from infinity_v3.compiler.programs.check import check_retarget

    check_retarget(artifact.manifest, request.targets)
    preflight(request)
    silence_libraries()
    make_no_cache()
    # Imports torch, which takes seconds; a refusal above should not.
    with progress.stage("load torch"):
        from infinity_v3.compiler.programs.retarget import retarget_artifact

    with full_disk_as_one_sentence(request.out):
        return retarget_artifact(artifact, request, progress)


def _opened(text: str, place: RegistryPlace, progress: Progress, *, allow_shared: bool) -> Artifact:
    path = artifact_path(text, place, progress)
    with progress.stage("check digests"):
        return open_artifact(path, digests=DigestPolicy.ALWAYS, allow_shared=allow_shared)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    option = next(option for option in compile_options() if option.field == "labels")
    pairs = parse_texts(option, texts, "--label")
    assert isinstance(pairs, dict), "labels are read as pairs; this is a bug"
    return pairs


def _print(artifact: Artifact, progress: Progress, *, is_json: bool) -> None:
    progress.finish()
    print_result(compiled_document(artifact, progress), compiled_text(artifact), is_json=is_json)
