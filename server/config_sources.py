"""Reads options that come as text: from the command line and from the environment.

Each source becomes a layer of checked settings with their origin. Knows nothing of precedence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import BadValueError, IntType, Scalar

_ENV_PREFIX = "INFINITY_"
_COMPILER_PREFIX = "INFINITY_COMPILE_"
_UNPREFIXED = ("MAX_SEQUENCE_LENGTH", "PORT")
_LAST_PORT = "AIP_HTTP_PORT"
_EMPTY_ELEMENT = "expected a value on both sides of every ';', found an empty element"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one source says about one option; `is_array` marks a TOML array."""

    values: tuple[Scalar, ...]
    origin: str
    is_array: bool = False


Layer = dict[str, Setting]


def read_flags(given: Mapping[str, Sequence[str]], options: Sequence[Option]) -> Layer:
    """Check the values of the command line.

    Args:
        given: option name -> values in the order typed; options that were not typed are absent.
        options: every option there is.

    Raises:
        UsageError: a malformed value, or several for an option that takes one.
    """
    typed = [option for option in options if option.name in given]
    for option in typed:
        _check_once(option, given[option.name])
    return {
        option.name: _text_setting(option, given[option.name], f"--{option.name}", "command line")
        for option in typed
    }


def _check_once(option: Option, texts: Sequence[str]) -> None:
    """Nobody means both of two values; which of them was meant is not for us to guess."""
    if len(texts) > 1 and not (option.is_per_model or option.is_repeatable):
        shown = "" if option.is_secret else f": {', '.join(text or repr(text) for text in texts)}"
        raise UsageError(
            f"--{option.name} is given {len(texts)} times{shown}; it takes one value, keep one"
        )


def read_environment(
    environ: Mapping[str, str], options: Sequence[Option]
) -> tuple[Layer, list[str]]:
    """Check `INFINITY_*` variables.

    Returns:
        The layer, and warnings about variables that no option reads.
    """
    by_name = {option.env_name: option for option in options}
    by_word = [name.removeprefix(_ENV_PREFIX) for name in by_name]
    layer: Layer = {}
    for variable in _UNPREFIXED:
        option = by_name[_ENV_PREFIX + variable]
        if environ.get(variable):
            layer[option.name] = _env_setting(option, variable, environ[variable])
    warnings = []
    for variable in sorted(environ):
        if not variable.startswith(_ENV_PREFIX) or variable.startswith(_COMPILER_PREFIX):
            continue
        if variable not in by_name:
            hint = nearest(variable.removeprefix(_ENV_PREFIX), by_word, prefix=_ENV_PREFIX)
            shown = variable.encode("ascii", "backslashreplace").decode()
            warnings.append(f"environment variable {shown} is not an option of this server{hint}")
        elif environ[variable]:
            option = by_name[variable]
            layer[option.name] = _env_setting(option, variable, environ[variable])
    return layer, warnings


def read_platform(environ: Mapping[str, str], options: Sequence[Option]) -> Layer:
    """What a hosting platform proposes, for options that no other source sets."""
    text = environ.get(_LAST_PORT)
    if not text:
        return {}
    return {
        option.name: _env_setting(option, _LAST_PORT, text)
        for option in options
        if option.name == "port"
    }


def _env_setting(option: Option, variable: str, text: str) -> Setting:
    if text.startswith("tcp://") and isinstance(option.value_type, IntType):
        raise UsageError(
            f"{variable}={text}: expected an integer; Kubernetes sets this variable for a Service "
            f"of that name: set enableServiceLinks: false, or rename the Service"
        )
    return _text_setting(option, (text,), variable, f"env {variable}")


def _text_setting(option: Option, texts: Sequence[str], where: str, origin: str) -> Setting:
    if not option.is_per_model:
        return Setting(values=tuple(_parse(option, text, where) for text in texts), origin=origin)
    elements = [element for text in texts for element in _elements(text, where)]
    return Setting(values=tuple(_parse(option, text, where) for text in elements), origin=origin)


def _elements(text: str, where: str) -> list[str]:
    """One value per model; an empty text stands for itself, an empty element for a mistake."""
    elements = text.split(";")
    if len(elements) > 1 and "" in elements:
        raise UsageError(f"{_with_value(where, text)}: {_EMPTY_ELEMENT}")
    return elements


def _with_value(where: str, value: str) -> str:
    """`--flag value` or `NAME=value`; an empty one shows as `--flag=`."""
    separator = " " if where.startswith("-") and value else "="
    return f"{where}{separator}{value}"


def _parse(option: Option, text: str, where: str) -> Scalar:
    if option.is_optional and text == "none":
        return None
    try:
        return option.value_type.parse(text)
    except BadValueError as error:
        shown = "***" if option.is_secret else text
        raise UsageError(f"{_with_value(where, shown)}: {error}") from None
