"""Shows a configuration: `--print-config` and the start-up log. The API key is never shown."""

import json
from collections.abc import Iterator

from infinity_v3.server.config import Configuration, all_options
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import IntOrWordType
from infinity_v3.server.product import product_version


def shown_value(option: Option, value: object) -> str:
    """A value as a user would type it."""
    if value is None:
        return unset_value(option)
    if option.is_secret:
        return "***"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, tuple):
        return _printable(",".join(map(str, value))) or unset_value(option)
    return _printable(str(value))


def shown_default(option: Option) -> str:
    """The default for people to read; "" = there is none."""
    if option.default not in {None, ()}:
        return shown_value(option, option.default)
    if option.default_note:
        return option.default_note
    return unset_value(option) if isinstance(option.value_type, IntOrWordType) else ""


def _printable(text: str) -> str:
    """The text on one line: what cannot be printed becomes an escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def unset_value(option: Option) -> str:
    """What stands for an option that is not set: a word that may be typed, or what it comes to."""
    if option.is_optional:
        return "none"
    if isinstance(option.value_type, IntOrWordType):
        return option.value_type.word
    return option.default_note or "none"


def _lines(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    for option in all_options():
        origins = configuration.origins[option.name]
        if not option.is_per_model:
            value = getattr(configuration.serve, option.field)
            yield option.name, shown_value(option, value), origins[0]
            continue
        for index, model in enumerate(configuration.reported_models):
            value = shown_value(option, getattr(model, option.field))
            label = option.name if len(origins) == 1 else f"{option.name}[{index}]"
            yield label, value, origins[index]


def render_all(configuration: Configuration) -> str:
    """One line per option: name=value (origin)."""
    return "".join(f"{name}={value} ({origin})\n" for name, value, origin in _lines(configuration))


def render_json(configuration: Configuration) -> str:
    """The same as one JSON object, with values of their own types; null = not set.

    Options of the process are under "serve", those of models in order under "models".
    """
    of_process: dict[str, object] = {}
    models: list[dict[str, object]] = [{} for _ in configuration.reported_models]
    for option in all_options():
        origins = configuration.origins[option.name]
        if option.is_per_model:
            for model, table, origin in zip(
                configuration.reported_models, models, origins, strict=True
            ):
                table[option.name] = _entry(option, getattr(model, option.field), origin)
        else:
            value = getattr(configuration.serve, option.field)
            of_process[option.name] = _entry(option, value, origins[0])
    document = {
        "version": product_version(),
        "serve": of_process,
        "models": models,
        "warnings": configuration.warnings,
    }
    return json.dumps(document, indent=2, default=str) + "\n"


def _entry(option: Option, value: object, origin: str) -> dict[str, object]:
    shown = "***" if option.is_secret and value is not None else value
    return {"value": shown, "origin": origin}


def changed_lines(configuration: Configuration) -> list[str]:
    """The same for options that the user set."""
    return [
        f"{name}={value} ({origin})"
        for name, value, origin in _lines(configuration)
        if origin != "default"
    ]
