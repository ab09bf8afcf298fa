"""Bodies of errors, for the API document; `errors.error_body` writes them.

Knows nothing of what can be wrong.
"""

from typing import Literal

from msgspec import Struct

ErrorType = Literal[
    "Backend",
    "Empty",
    "Internal",
    "Malformed",
    "MethodNotAllowed",
    "NotFound",
    "Overloaded",
    "PayloadTooLarge",
    "RequestTimeout",
    "Tokenizer",
    "Unauthorized",
    "Unhealthy",
    "UnsupportedMediaType",
    "Validation",
]
ErrorCode = Literal[
    "batch_too_large",
    "empty_input",
    "engine_error",
    "input_too_long",
    "internal_error",
    "invalid_api_key",
    "invalid_dimensions",
    "invalid_token_id",
    "invalid_value",
    "malformed_body",
    "method_not_allowed",
    "model_not_found",
    "non_finite_output",
    "not_found",
    "not_ready",
    "overloaded",
    "payload_too_large",
    "request_timeout",
    "tokenizer_error",
    "unknown_prompt",
    "unsupported_media_type",
    "unsupported_task",
]
NestedType = Literal[
    "authentication_error",
    "invalid_request_error",
    "not_found_error",
    "rate_limit_error",
    "server_error",
]


class TeiError(Struct, kw_only=True):
    """Error body of the TEI routes."""

    error: str
    error_type: ErrorType


class OpenAIErrorDetail(Struct, kw_only=True):
    """What OpenAI clients read."""

    message: str
    type: NestedType
    param: str | None
    code: ErrorCode


class OpenAIError(Struct, kw_only=True):
    """Error body of the OpenAI routes."""

    error: OpenAIErrorDetail
    message: str
    type: ErrorType
    code: int


class DecisionErrorDetail(Struct, kw_only=True):
    """What went wrong with a request as a whole."""

    error_type: str
    message: str


class DecisionErrorEntry(Struct, kw_only=True):
    """What is wrong with a value, and where it stands."""

    loc: list[str | int]
    msg: str
    type: str


class DecisionError(Struct, kw_only=True):
    """Error body of the decision routes."""

    detail: DecisionErrorDetail | list[DecisionErrorEntry]


class SglangError(Struct, kw_only=True):
    """Error body of the classify routes."""

    object: Literal["error"]
    message: str
    type: Literal["invalid_request_error", "overloaded_error", "server_error"]
    param: None
    code: int
