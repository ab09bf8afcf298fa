"""One option of the server, described by the dataclass field that holds its value.

Knows nothing of which options there are.
"""

from dataclasses import MISSING, Field, dataclass, field
from typing import Any

from infinity_v3.server.option_types import ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, as its dataclass field describes it.

    Attributes:
        name: long flag without dashes; also the TOML key.
        field: name of the dataclass field.
        is_per_model: one value per --model-id.
        is_repeatable: several values for one setting (not per model).
        is_optional: the word `none` leaves it unset.
        is_secret: the value is never printed.
        in_file: the TOML file may hold it.
        default_note: what an unset value comes to, where the default cannot say it.
    """

    name: str
    field: str
    group: str
    value_type: ValueType
    help_text: str
    default: object
    is_per_model: bool = False
    is_repeatable: bool = False
    is_optional: bool = False
    is_secret: bool = False
    in_file: bool = True
    default_note: str = ""

    @property
    def env_name(self) -> str:
        return "INFINITY_" + self.name.upper().replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meta:
    group: str
    value_type: ValueType
    help_text: str
    flag: str | None = None
    is_repeatable: bool = False
    is_optional: bool = False
    is_secret: bool = False
    in_file: bool = True
    default_note: str = ""


def opt(
    group: str,
    value_type: ValueType,
    help_text: str,
    *,
    default: Any = MISSING,  # noqa: ANN401  # like dataclasses.field
    **more: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """A dataclass field that is an option; `more` goes to `_Meta`."""
    meta = _Meta(group=group, value_type=value_type, help_text=help_text, **more)
    return field(default=default, metadata={"option": meta})


def option_of(spec: "Field[Any]", *, is_per_model: bool) -> Option:
    """The option that a field made by `opt` describes."""
    meta: _Meta = spec.metadata["option"]
    return Option(
        name=meta.flag or spec.name.replace("_", "-"),
        field=spec.name,
        group=meta.group,
        value_type=meta.value_type,
        help_text=meta.help_text,
        default=None if spec.default is MISSING else spec.default,
        is_per_model=is_per_model,
        is_repeatable=meta.is_repeatable,
        is_optional=meta.is_optional,
        is_secret=meta.is_secret,
        in_file=meta.in_file,
        default_note=meta.default_note,
    )
