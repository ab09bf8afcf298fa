"""`infinity-compile build`: its arguments, and what it prints."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.exits import VerdictError
from infinity_v3.compiler.registry.keys import sign_key_option, signer_of
from infinity_v3.compiler.registry.output import print_result
from infinity_v3.compiler.registry.place import REGISTRY_ENV

if TYPE_CHECKING:
    from infinity_v3.artifacts.registry.signing import Signer
    from infinity_v3.compiler.builds.entry import BuildFile, ModelEntry
    from infinity_v3.compiler.builds.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildArguments:
    """What the command line of `build` said; None = not given."""

    file: Path
    only: tuple[str, ...]
    jobs: int | None
    registry: str | None
    out: Path | None
    junit: Path | None
    sign_key: Path | None
    is_check: bool
    is_fail_fast: bool
    is_json: bool


@click.command()
@click.argument("file", metavar="FILE.toml", type=click.Path(path_type=Path))
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Build the models of this name; repeat for several. [default: all]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Models built at a time, which share the CPUs; each takes memory for its weights several "
    "times over. [default: `jobs` of the file, else 1]",
)
@click.option(
    "--registry",
    metavar="LOCATION",
    help="Where artifacts are pushed, and looked up before they are built: a directory or URL. "
    f"[env: {REGISTRY_ENV}; default: `registry` of the file, else they stay in the out folder]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the artifacts, each in NAME/VERSION. [default: `out` of the file, else "
    "artifacts beside it]",
)
@sign_key_option(
    "Sign with this Ed25519 key what is pushed, and what is there without its signature."
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE.xml",
    help="Write the results as JUnit XML, also when the run fails or is interrupted.",
)
@click.option("--check", "is_check", is_flag=True, help="Validate the file and build nothing.")
@click.option(
    "--fail-fast",
    "is_fail_fast",
    is_flag=True,
    help="Stop at the first model that fails. [default: build the others all the same]",
)
@json_option
def build(**given: object) -> None:
    """Build every model of FILE.toml that is not there yet, and push it to the registry.

    What the registry, or the out folder, has of the same inputs is not built again. A model that
    fails does not stop the others. The exit code is that of the worst failure, in the order 3
    (refused), 4 (a gate failed), 2 (wrong usage), 1 (failed at run time).
    """
    run_build(BuildArguments(**given))  # type: ignore[arg-type]  # click made each of its type


def run_build(arguments: BuildArguments) -> None:
    """Build the models of a file and print how each ended.

    Raises:
        VerdictError: some model failed; everything was printed.
        InfinityError: the file or the registry is wrong, and nothing was built.
    """
    from infinity_v3.compiler.builds.build_file import read_build_file, select_models

    file = _overridden(read_build_file(arguments.file), arguments)
    entries = select_models(file, arguments.only)
    _check_junit(arguments.junit)
    signer = _signer(arguments.sign_key)
    if arguments.is_check:
        _print_check(file, entries, is_json=arguments.is_json)
        return
    outcomes = _run(file, entries, arguments, signer)
    from infinity_v3.compiler.builds.outcome import worst_error
    from infinity_v3.compiler.builds.report import summary_json, summary_text

    print_result(
        summary_json(outcomes, file.registry),
        summary_text(outcomes, file.registry),
        is_json=arguments.is_json,
    )
    error = worst_error(outcomes)
    if error is not None:
        raise VerdictError(error)


def _overridden(file: "BuildFile", arguments: BuildArguments) -> "BuildFile":
    registry = arguments.registry or os.environ.get(REGISTRY_ENV) or file.registry
    return replace(
        file,
        registry=registry,
        out=arguments.out or file.out,
        jobs=arguments.jobs or file.jobs,
    )


def _run(
    file: "BuildFile",
    entries: "Sequence[ModelEntry]",
    arguments: BuildArguments,
    signer: "Signer | None",
) -> "tuple[Outcome, ...]":
    from infinity_v3.compiler.builds.run import BuildRun, RunSettings

    run = BuildRun(
        file,
        entries,
        RunSettings(
            is_fail_fast=arguments.is_fail_fast,
            is_silent=arguments.is_json,
            sign_key=arguments.sign_key,
            signer=signer,
        ),
    )
    try:
        run.run()
    finally:
        if arguments.junit is not None:
            _write_junit(arguments.junit, run.outcomes())
    return run.outcomes()


def _check_junit(path: Path | None) -> None:
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"--junit: {path}: expected a file in a folder that exists")


def _signer(path: Path | None) -> "Signer | None":
    """Read the key before anything is built: one that cannot be used is a wrong command line."""
    try:
        return signer_of(path)
    except (RunFailedError, UsageError) as error:
        raise UsageError(f"--sign-key: {error}") from error


def _write_junit(path: Path, outcomes: "Sequence[Outcome]") -> None:
    from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
    from infinity_v3.compiler.builds.junit import junit_xml

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os_errors_as_run_failed("write", path):
        try:
            temporary.write_bytes(junit_xml(outcomes))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _print_check(file: "BuildFile", entries: "Sequence[ModelEntry]", *, is_json: bool) -> None:
    from infinity_v3.compiler.builds.build_file import check_entries
    from infinity_v3.compiler.builds.report import check_json, check_text

    check_entries(entries)
    print_result(check_json(file, entries), check_text(file, entries), is_json=is_json)
