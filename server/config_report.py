"""Shows a configuration: `--print-config` and the start-up log. The API key is never shown."""

from collections.abc import Iterator

from infinity_v3.server.config import Configuration, all_options
from infinity_v3.server.option import Option


def shown_value(option: Option, value: object) -> str:
    """A value as a user would type it."""
    if value is None:
        return "auto" if not option.is_optional and option.is_per_model else "none"
    if option.is_secret:
        return "***"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)


def _lines(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    for option in all_options():
        origins = configuration.origins[option.name]
        if not option.is_per_model:
            value = getattr(configuration.serve, option.field)
            yield option.name, shown_value(option, value), origins[0]
            continue
        for index, model in enumerate(configuration.serve.models):
            value = shown_value(option, getattr(model, option.field))
            label = option.name if len(origins) == 1 else f"{option.name}[{index}]"
            yield label, value, origins[index]


def render_all(configuration: Configuration) -> str:
    """One line per option: name=value (origin)."""
    return "".join(f"{name}={value} ({origin})\n" for name, value, origin in _lines(configuration))


def changed_lines(configuration: Configuration) -> list[str]:
    """The same for options that the user set."""
    return [
        f"{name}={value} ({origin})"
        for name, value, origin in _lines(configuration)
        if origin != "default"
    ]
