"""`registry record-golden`: answers of an artifact, to hold later ones against."""

import secrets
from pathlib import Path

import click

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.publish import (
    existing_output,
    rename_without_overwrite,
    sync_paths,
)
from infinity_v3.artifacts.registry.pull import pull_bytes
from infinity_v3.artifacts.registry.pull_cache import pull_into_cache
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.gates.golden_file import (
    GoldenRequest,
    Request,
    read_requests,
    write_golden,
)
from infinity_v3.compiler.gates.golden_server import AskedServer, asked_server
from infinity_v3.compiler.gates.promote_command import default_cache
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options


@click.command("record-golden")
@click.argument("reference", metavar="REF")
@click.option(
    "--requests",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help='One request a line: {"path": "/embed", "body": {"inputs": "a text"}}.',
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Where requests and answers are written; must not exist.",
)
@click.option(
    "--artifact-cache",
    "cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the artifact is pulled to. [default: the user's cache]",
)
@registry_options
@json_option
def record_golden(  # one per option
    place: RegistryPlace,
    reference: str,
    requests: Path,
    out: Path,
    cache: Path | None,
    is_json: bool,
) -> None:
    """Serve the artifact of REF, ask it every request and write requests with answers.

    The file is what `golden-requests` of policy.toml names. Have it recorded from the artifact in
    the channel, for instance NAME:prod.
    """
    asked = _read(requests)
    _check_out(out)
    registry = place.open()
    resolved = registry.resolve(parse_reference(reference))
    progress = progress_of(is_json=is_json)
    artifact = _pull(registry, resolved, cache or default_cache(), progress)
    golden = _ask(artifact, asked, requests, progress)
    _write(out, write_golden(golden))
    progress.finish()
    document = {
        "name": resolved.name,
        "version": resolved.version,
        "id": resolved.id,
        "requests": len(golden),
        "path": str(out),
    }
    text = f"{out}\n  {len(golden)} answers of {resolved.name}=={resolved.version}\n"
    print_result(document, text, is_json=is_json)


def _read(path: Path) -> tuple[Request, ...]:
    with os_errors_as_run_failed("read", path):
        data = path.read_bytes()
    return read_requests(data, str(path))


def _pull(registry: Registry, resolved: Resolved, cache: Path, progress: Progress) -> Artifact:
    total = pull_bytes(registry.manifest(resolved.id))
    with progress.stage(f"pull {resolved.version}", total) as stage:
        path = pull_into_cache(registry, resolved, cache, advance=stage.advance)
    return open_artifact(path)


def _ask(
    artifact: Artifact, asked: tuple[Request, ...], path: Path, progress: Progress
) -> tuple[GoldenRequest, ...]:
    with (
        progress.stage("record answers", len(asked)) as stage,
        asked_server(artifact) as server,
    ):
        golden = []
        for request in asked:
            golden.append(_golden(server, request, path))
            stage.advance()
    return tuple(golden)


def _golden(server: AskedServer, request: Request, path: Path) -> GoldenRequest:
    answer = server.ask(request)
    if answer.problem:
        raise RefusedError(
            f"{path}: line {request.line}: {request.path}: expected an answer to record, found "
            f"{answer.problem}; correct the request"
        )
    return GoldenRequest(request=request, response=answer.document)


def _check_out(path: Path) -> None:
    if path.exists():
        raise existing_output(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: expected a directory to write it to, found none; make it first")


def _write(path: Path, data: bytes) -> None:
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    with os_errors_as_run_failed("write", path):
        try:
            temporary.write_bytes(data)
            sync_paths([temporary])
            rename_without_overwrite(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
