"""Arguments of `infinity-compile`. Knows how they are spelled and nothing else."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.openmp_variables import settle_openmp_variables
from infinity_v3.compiler.builds.command import build
from infinity_v3.compiler.catalog_command import catalog
from infinity_v3.compiler.command_group import CommandGroup, json_option
from infinity_v3.compiler.commands import (
    ModelArguments,
    VerifyArguments,
    run_inspect,
    run_model,
    run_targets,
    run_verify,
)
from infinity_v3.compiler.config_sources import CONFIG_ENV
from infinity_v3.compiler.exits import run_to_exit_code
from infinity_v3.compiler.options import compile_options
from infinity_v3.compiler.programs.commands import merge, retarget, upgrade
from infinity_v3.compiler.provenance import tool_version
from infinity_v3.compiler.registry.group import registry
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options
from infinity_v3.compiler.request import ValueType
from infinity_v3.compiler.tune_command import tune

PROGRAM = "infinity-compile"
_Command = Callable[..., None]


def request_options(command: _Command) -> _Command:
    """Give a command one option per field of `CompileRequest`, and the argument CHECKPOINT."""
    for option in reversed(compile_options()):
        if option.key == "checkpoint":
            command = click.argument(option.field, required=False)(command)
            continue
        if option.value_type is ValueType.CHOICE:
            form: dict[str, Any] = {"flag_value": "true", "default": None}
        else:
            form = {"multiple": True, "metavar": option.metavar}
        command = click.option(
            f"--{option.key}", option.field, help=f"{option.help} [env: {option.env}]", **form
        )(command)
    return command


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(tool_version(), message="%(prog)s %(version)s", prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Compile Hugging Face encoders ahead of time into artifacts that infinity_v3 serves."""
    if ctx.invoked_subcommand is None:
        ctx.fail(f"expected a command: {', '.join(cli.commands)}; see {PROGRAM} --help")
    settle_openmp_variables(os.environ)


@cli.command()
@request_options
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help=f"Options as TOML, at the top level or in [compile]. [env: {CONFIG_ENV}]",
)
@json_option
def model(config: Path | None, is_json: bool, **given: str | tuple[str, ...] | None) -> None:
    """Compile CHECKPOINT, a directory or hub id, into the artifact DIR.

    Every engine is run against the checkpoint's own model before anything is published; a failure
    leaves nothing behind. A value is taken from the flag, else the environment, else [compile] of
    the TOML file, else its top level.
    """
    flags = {
        option.key: (value,) if isinstance(value, str) else value
        for option in compile_options()
        if (value := given[option.field])
    }
    run_model(ModelArguments(flags=flags, config=config, is_json=is_json))


@cli.command()
@click.argument("artifact")
@registry_options
@json_option
def inspect(place: RegistryPlace, artifact: str, is_json: bool) -> None:
    """Show what ARTIFACT is and which of its targets this host can run.

    ARTIFACT is a directory, or a reference into a registry such as name:channel.
    """
    run_inspect(artifact, place, is_json=is_json)


@cli.command()
@click.argument("artifact")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The checkpoint it was compiled from, to run its own model as the reference. Without it, "
    "engines are only compared with themselves, alone against in a batch.",
)
@click.option(
    "--allow-shared-artifacts",
    "allow_shared",
    is_flag=True,
    help="Load native code that other users own or can write to.",
)
@registry_options
@json_option
def verify(
    place: RegistryPlace,
    artifact: str,
    checkpoint: Path | None,
    allow_shared: bool,
    is_json: bool,
) -> None:
    """Hash every file of ARTIFACT again and run its engines against the reference.

    ARTIFACT is a directory, or a reference into a registry such as name:channel.
    """
    run_verify(
        VerifyArguments(
            artifact=artifact,
            place=place,
            checkpoint=checkpoint,
            allow_shared=allow_shared,
            is_json=is_json,
        )
    )


@cli.command()
@json_option
def targets(is_json: bool) -> None:
    """Show which targets this host can build and run, with reasons."""
    run_targets(is_json=is_json)


cli.add_command(build)
cli.add_command(catalog)
cli.add_command(merge)
cli.add_command(registry)
cli.add_command(retarget)
cli.add_command(tune)
cli.add_command(upgrade)


def main() -> None:
    """Run the program and exit with its code."""
    sys.exit(run_to_exit_code(lambda: _invoke(sys.argv[1:])))


def _invoke(arguments: list[str]) -> None:
    # Not cli.main(): it turns Ctrl-C and a closed pipe into exit codes of its own.
    try:
        with cli.make_context(PROGRAM, list(arguments)) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit:  # --help and --version have printed
        return
    except click.ClickException as error:
        raise UsageError(_one_line(error)) from error


def _one_line(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        hint = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"no such option: {name}{hint}"
    message = " ".join(error.format_message().split())
    return message[:1].lower() + message[1:].removesuffix(".")


if __name__ == "__main__":
    main()
