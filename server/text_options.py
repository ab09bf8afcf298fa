"""How a body says that its texts become tokens, in the runtime's words.

Knows nothing of routes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.requests import TextOptions, TruncationSide
from infinity_v3.server.errors import validation
from infinity_v3.server.schemas import CutBody, Direction, RoutedBody

_SIDES: Mapping[Direction, TruncationSide] = {
    "Left": TruncationSide.LEFT,
    "left": TruncationSide.LEFT,
    "Right": TruncationSide.RIGHT,
    "right": TruncationSide.RIGHT,
}


class TextFields(Protocol):
    """Fields about texts, wherever in a body they stand."""

    @property
    def truncate(self) -> bool | None: ...

    @property
    def truncation_direction(self) -> Direction: ...

    @property
    def prompt_name(self) -> str | None: ...


def text_options(fields: TextFields) -> TextOptions:
    """How texts become tokens."""
    return TextOptions(
        truncate=fields.truncate,
        truncation_side=_SIDES[fields.truncation_direction],
        prompt_name=fields.prompt_name,
    )


def cut_options(body: CutBody, model: ModelInfo) -> TextOptions:
    """The same where a request may name the length to cut at; to forbid cutting outweighs it.

    Raises:
        HttpError: 422, a length that the model does not have.
    """
    length, limit, options = body.truncate_prompt_tokens, model.max_input_tokens, text_options(body)
    if length is None:
        return options
    if length != -1 and not 1 <= length <= limit:
        raise validation(
            f"`truncate_prompt_tokens` must be -1 or 1 to {limit}. Given: {length}",
            param="truncate_prompt_tokens",
        )
    return replace(
        options,
        truncate=options.truncate is not False,
        max_tokens=None if length == -1 else length,
    )


def with_reason(error: InferenceError, body: RoutedBody) -> InferenceError:
    """Say of a too long input why it was not cut, where the request names a length to cut at."""
    is_refused_cut = (
        isinstance(body, CutBody)
        and body.truncate is False
        and body.truncate_prompt_tokens is not None
    )
    if error.code != "input_too_long" or not is_refused_cut:
        return error
    reason = "nothing is cut to `truncate_prompt_tokens` where `truncate` is false"
    return InferenceError(
        error.kind,
        error.code,
        f"{error.message}; {reason}",
        item=error.item,
        field=error.field,
    )
