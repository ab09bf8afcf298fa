"""Requests in the service's own words; the server has checked their shape."""

from dataclasses import dataclass
from enum import Enum

TextInput = str | tuple[int, ...]
"""A text, or token ids that are fed to the model as they are."""


class TruncationSide(str, Enum):
    """Which end of a too long input is cut off."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How texts become tokens.

    Attributes:
        truncate: None = the server's default.
        max_tokens: cut at this many tokens instead of the model's limit (1 .. limit).
        prompt_name: None = the default prompt, if there is one.
    """

    truncate: bool | None = None
    truncation_side: TruncationSide = TruncationSide.RIGHT
    max_tokens: int | None = None
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a request may run. `deadline_s` is on the clock of time.monotonic()."""

    is_priority: bool = False
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest:
    """Texts or ids to turn into one vector each.

    Attributes:
        items: at least one.
        is_list: False for a bare input; then errors carry no item position.
        dimensions: keep the first that many components, then normalise.
    """

    items: tuple[TextInput, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()
    normalize: bool = True
    dimensions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedTokensRequest:
    """Texts or ids to turn into one vector per token."""

    items: tuple[TextInput, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeRequest:
    """Whole texts to show as tokens; nothing is truncated."""

    texts: tuple[str, ...]
    is_list: bool
    add_special_tokens: bool = True
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """Lists of token ids to turn back into texts."""

    id_lists: tuple[tuple[int, ...], ...]
    is_list: bool
    skip_special_tokens: bool = True
