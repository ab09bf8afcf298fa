"""Errors of one request.

Knows nothing of HTTP: the server's table turns a kind into a status and a body.
"""

from enum import Enum


class ErrorKind(str, Enum):
    """What went wrong, in the vocabulary of the wire (`error_type`)."""

    EMPTY = "Empty"
    VALIDATION = "Validation"
    TOKENIZER = "Tokenizer"
    BACKEND = "Backend"
    OVERLOADED = "Overloaded"
    REQUEST_TIMEOUT = "RequestTimeout"
    UNHEALTHY = "Unhealthy"
    INTERNAL = "Internal"


class Limit(str, Enum):
    """Which bound of the admission refused a request."""

    REQUESTS = "requests"
    TOKENS = "tokens"


ITEMS_FIELD = "inputs"
"""What messages call the items of a request, which some routes call otherwise."""
QUERY_FIELD = "query"
SOURCE_FIELD = "inputs.source_sentence"


class InferenceError(Exception):
    """A request that gets an answer other than a result.

    Attributes:
        kind: decides the HTTP status.
        code: machine-readable reason, e.g. "input_too_long", "invalid_token_id", "engine_error".
        message: one sentence; holds no request text.
        item: zero-based position in the request's list, None for a bare input.
        field: the request's field at fault, ITEMS_FIELD for the items; None when it is none.
        limit: the bound that was met, for OVERLOADED.
        retry_after_s: whole seconds a client should wait, for OVERLOADED and UNHEALTHY.
    """

    def __init__(  # noqa: PLR0913  # an error's facts
        self,
        kind: ErrorKind,
        code: str,
        message: str,
        *,
        item: int | None = None,
        field: str | None = None,
        limit: Limit | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.item = item
        self.field = field
        self.limit = limit
        self.retry_after_s = retry_after_s


class DisbandedError(Exception):
    """A request was not run because another one, with which it stood or fell, was refused."""
