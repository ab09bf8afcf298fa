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
from infinity_v3.server.config import TOPICS, Configuration, all_options
from infinity_v3.server.option import Option

_INTRO = """Serve compiled models over HTTP: embeddings, reranking, classification, typed decisions.

\b
infinity_v3 --model-id ./artifacts/minilm
curl localhost:3000/v1/embeddings -H 'content-type: application/json' \\
    -d '{"input": "a cat"}'

Options also come from INFINITY_* variables and a TOML file. The command line wins over the
environment, the environment over the file. What came from where is shown by --print-config.

Options marked * are per model: they take one value for all models, or one per --model-id: repeat
the flag or separate values with ';'. The word 'none' leaves one unset that has no default. Other
flags are given once, unless their text says that they may be repeated.

Exit codes: 0 done, 1 failed at run time, 2 wrong usage, 3 artifact or host refused, 130 or 143
interrupted."""


class _OptionParameter(click.Option):
    """A flag derived from a configuration field; keeps the value as text."""

    def __init__(self, option: Option) -> None:
        names = [f"--{option.name}", *(["-p"] if option.name == "port" else [])]
        bare_value = option.value_type.bare_value
        bare: dict[str, Any] = (
            {} if bare_value is None else {"is_flag": False, "flag_value": bare_value}
        )
        super().__init__(
            [*names, option.field],
            type=str,
            multiple=True,
            metavar=option.value_type.metavar,
            help=option.help_text,
            **bare,
        )
        self.option = option

    def write_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The flag on a line of its own, what it does and costs, where else it may be set."""
        from infinity_v3.server.config_report import shown_default

        names, text = self.get_help_record(ctx) or ("", "")
        default = shown_default(self.option)
        formatter.write_text(f"{names} *" if self.option.is_per_model else names)
        with formatter.indentation():
            formatter.write_text(text)
            formatter.write_text(
                f"[env: {self.option.env_name}]{f' [default: {default}]' if default else ''}"
            )


class _ServeCommand(click.Command):
    """Groups options by topic in the help text."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parameters = [one for one in self.get_params(ctx) if isinstance(one, _OptionParameter)]
        for topic, sentence in TOPICS.items():
            with formatter.section(topic):
                formatter.write_text(sentence)
                for parameter in parameters:
                    if parameter.option.group == topic:
                        formatter.write_paragraph()
                        parameter.write_help(ctx, formatter)
        others = [one for one in self.get_params(ctx) if not isinstance(one, _OptionParameter)]
        with formatter.section("Other"):
            formatter.write_dl([one.get_help_record(ctx) or ("", "") for one in others])


def _command(options: Sequence[Option]) -> click.Command:
    version = click.Option(["--version"], is_flag=True, help="Print the version and exit.")
    parameters: list[click.Parameter] = [_OptionParameter(option) for option in options]
    return _ServeCommand(
        "infinity_v3",
        params=[*parameters, version],
        help=_INTRO,
        callback=_collect,
        context_settings={
            "max_content_width": 100,
            "help_option_names": ["-h", "--help"],
            "allow_extra_args": True,
        },
    )


def _collect(**values: object) -> Mapping[str, object]:
    """Everything typed; words that belong to no flag are refused in our own words."""
    words = click.get_current_context().args
    if words:
        raise UsageError(f"{words[0]}: expected options only; --model-id says what to serve")
    return values


def typed_options(arguments: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Option name -> values typed; None when --help or --version has printed its answer.

    Raises:
        UsageError: an unknown option, a stray word or a missing value.
    """
    options = all_options()
    try:
        values = _command(options).main(list(arguments), standalone_mode=False)
    except click.NoSuchOption as error:
        known = [f"--{option.name}" for option in options]
        raise UsageError(
            f"{error.option_name}: unknown option{nearest(error.option_name, known)}"
        ) from None
    except click.BadOptionUsage as error:
        raise UsageError(f"{error.option_name}: expected a value after it, found none") from None
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


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the arguments say; a failure becomes one sentence on standard error.

    Returns:
        The exit code.
    """
    try:
        return _run(arguments, environ)
    except InfinityError as error:
        click.echo("error: " + " ".join(str(error).split()), err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from infinity_v3.server.config_merge import load_configuration

    with _writing_output():
        flags = typed_options(arguments)
    if flags is None:
        return 0
    configuration = load_configuration(flags, environ)
    if configuration.serve.print_config != "false":
        _print_configuration(configuration)
        return 0
    from infinity_v3.server.launch import serve

    return serve(configuration)


def _print_configuration(configuration: Configuration) -> None:
    from infinity_v3.server.config_report import render_all, render_json

    for warning in configuration.warnings:
        click.echo(f"warning: {warning}", err=True)
    is_json = configuration.serve.print_config == "json"
    with _writing_output():
        click.echo((render_json if is_json else render_all)(configuration), nl=False)


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
    _complete_process()
    _end_process(run(sys.argv[1:] if arguments is None else arguments, os.environ))


def _complete_process() -> None:
    """Give the process what every library expects: three open streams, a working directory."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the closed stream's; else a connection would get it.
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before the interpreter started
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        Path.cwd()
    except FileNotFoundError:
        os.chdir("/")


def _end_process(code: int) -> NoReturn:
    """Leave without tearing the interpreter down: native threads may still be running."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
