"""Arguments of `infinity_v3`. Hands them over as text; knows nothing of their meaning."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from infinity_v3.artifacts.errors import InfinityError, RunFailedError, UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.server.config import all_options
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import BoolType

_INTRO = """Serve compiled embedding models over HTTP.

Options also come from INFINITY_* variables and a TOML file. The command line wins over the
environment, the environment over the file. Per-model options take one value for all models, or one
per --model-id: repeat the flag or separate values with ';'."""


class _OptionParameter(click.Option):
    """A flag derived from a configuration field; keeps the value as text."""

    def __init__(self, option: Option) -> None:
        names = [f"--{option.name}", *(["-p"] if option.name == "port" else [])]
        # A bare switch means true; every other flag needs its value.
        is_bool = isinstance(option.value_type, BoolType)
        bare: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if is_bool else {}
        super().__init__(
            [*names, option.field],
            type=str,
            multiple=True,
            metavar=option.value_type.metavar,
            help=_help(option),
            **bare,
        )
        self.group = option.group


def _help(option: Option) -> str:
    from infinity_v3.server.config_report import shown_value

    note = (
        "" if option.default in {None, ()} else f" [default: {shown_value(option, option.default)}]"
    )
    return f"{option.help_text} [env: {option.env_name}]{note}"


class _ServeCommand(click.Command):
    """Groups options by topic in the help text."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=34)


def _command(options: Sequence[Option]) -> click.Command:
    version = click.Option(["--version"], is_flag=True, help="Print the version and exit.")
    parameters: list[click.Parameter] = [_OptionParameter(option) for option in options]
    return _ServeCommand(
        "infinity_v3",
        params=[*parameters, version],
        help=_INTRO,
        callback=lambda **values: values,
        context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    )


def _parse(arguments: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Option name -> values typed; None when --help or --version has printed its answer."""
    options = all_options()
    try:
        values = _command(options).main(list(arguments), standalone_mode=False)
    except click.NoSuchOption as error:
        known = [f"--{option.name}" for option in options]
        raise UsageError(
            f"{error.option_name}: unknown option{nearest(error.option_name, known)}"
        ) from None
    except click.ClickException as error:
        raise UsageError(error.format_message()) from None
    if not isinstance(values, dict):
        return None
    if values["version"]:
        _print_version()
        return None
    return {option.name: values[option.field] for option in options if values[option.field]}


def _print_version() -> None:
    from infinity_v3.server.product import product_version

    click.echo(f"infinity_v3 {product_version()}")


def _run(arguments: Sequence[str]) -> int:
    from infinity_v3.server.config_merge import load_configuration

    with _writing_output():
        flags = _parse(arguments)
    if flags is None:
        return 0
    configuration = load_configuration(flags, os.environ)
    if configuration.serve.print_config:
        from infinity_v3.server.config_report import render_all

        for warning in configuration.warnings:
            click.echo(f"warning: {warning}", err=True)
        with _writing_output():
            click.echo(render_all(configuration), nl=False)
        return 0
    from infinity_v3.server.launch import serve

    return serve(configuration)


@contextlib.contextmanager
def _writing_output() -> Iterator[None]:
    """Turn a failure to print an answer into one sentence.

    Raises:
        RunFailedError: it could not be written whole.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail again when the process ends.
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), 1)
        raise RunFailedError(f"the output could not be written: {error.strerror}") from None


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point; ends the process with the product's exit codes."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except InfinityError as error:
        click.echo("error: " + " ".join(str(error).split()), err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    _end_process(code)


def _end_process(code: int) -> NoReturn:
    """Leave without tearing the interpreter down: native threads may still be running."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
