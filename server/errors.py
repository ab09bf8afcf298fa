"""The one table from errors to HTTP: status, nested type and body. Knows nothing of routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import orjson

from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError, Limit

Headers = tuple[tuple[str, str], ...]
Loc = tuple[str | int, ...]
"""Keys and positions that lead to a value of a request."""


class HttpErrorKind(str, Enum):
    """Errors that only HTTP knows, in the vocabulary of the wire."""

    MALFORMED = "Malformed"
    UNAUTHORIZED = "Unauthorized"
    NOT_FOUND = "NotFound"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType"


AnyKind = ErrorKind | HttpErrorKind


class Shape(str, Enum):
    """Family of error bodies a route answers with."""

    TEI = "tei"
    OPENAI = "openai"
    SGLANG = "sglang"
    SYSTEMONE = "systemone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """How one kind appears on the wire; `failure` and `rejection` label its metrics."""

    status: int
    code: str
    nested_type: str
    failure: str | None = None
    rejection: str | None = None


_INVALID = "invalid_request_error"
_SERVER = "server_error"

ERROR_TABLE: Mapping[AnyKind, ErrorRow] = {
    ErrorKind.EMPTY: ErrorRow(
        status=400,
        code="empty_input",
        nested_type=_INVALID,
        failure="validation",
        rejection="empty",
    ),
    ErrorKind.VALIDATION: ErrorRow(
        status=422,
        code="invalid_value",
        nested_type=_INVALID,
        failure="validation",
        rejection="validation",
    ),
    ErrorKind.TOKENIZER: ErrorRow(
        status=422,
        code="tokenizer_error",
        nested_type=_INVALID,
        failure="tokenization",
        rejection="validation",
    ),
    ErrorKind.BACKEND: ErrorRow(
        status=424, code="engine_error", nested_type=_SERVER, failure="inference"
    ),
    ErrorKind.OVERLOADED: ErrorRow(
        status=429,
        code="overloaded",
        nested_type="rate_limit_error",
        failure="overloaded",
        rejection="requests_limit",
    ),
    ErrorKind.REQUEST_TIMEOUT: ErrorRow(
        status=408,
        code="request_timeout",
        nested_type=_SERVER,
        failure="dropped",
        rejection="timeout",
    ),
    ErrorKind.UNHEALTHY: ErrorRow(
        status=503,
        code="not_ready",
        nested_type=_SERVER,
        failure="dropped",  # only requests that were accepted before count it
        rejection="not_ready",
    ),
    ErrorKind.INTERNAL: ErrorRow(
        status=500, code="internal_error", nested_type=_SERVER, failure="inference"
    ),
    HttpErrorKind.MALFORMED: ErrorRow(
        status=400, code="malformed_body", nested_type=_INVALID, rejection="malformed"
    ),
    HttpErrorKind.UNAUTHORIZED: ErrorRow(
        status=401, code="invalid_api_key", nested_type="authentication_error", rejection="auth"
    ),
    HttpErrorKind.NOT_FOUND: ErrorRow(status=404, code="not_found", nested_type="not_found_error"),
    HttpErrorKind.METHOD_NOT_ALLOWED: ErrorRow(
        status=405, code="method_not_allowed", nested_type=_INVALID
    ),
    HttpErrorKind.PAYLOAD_TOO_LARGE: ErrorRow(
        status=413, code="payload_too_large", nested_type=_INVALID, rejection="payload"
    ),
    HttpErrorKind.UNSUPPORTED_MEDIA_TYPE: ErrorRow(
        status=415, code="unsupported_media_type", nested_type=_INVALID, rejection="media_type"
    ),
}

_CODE_NESTED_TYPES = {"unsupported_task": _INVALID}
_CODE_FAILURES = {"batch_too_large": "batch_size", "unsupported_task": "model_type"}
_CODE_REJECTIONS = {
    "unsupported_task": "unsupported_task",
    "model_not_found": "model_not_found",
}
_OF_THE_WHOLE = {ErrorKind.OVERLOADED, ErrorKind.REQUEST_TIMEOUT, ErrorKind.UNHEALTHY}
_LIMIT_REJECTIONS = {Limit.REQUESTS: "requests_limit", Limit.TOKENS: "tokens_limit"}
_EMPTY_PREFIX = "Input validation error: "


class HttpError(Exception):
    """A request that is answered with an error.

    Attributes:
        kind: row of the table.
        code: machine-readable reason; None = the row's.
        message: one sentence without request texts.
        item: zero-based position in the request's list; becomes a suffix.
        param: request field at fault, for the OpenAI shape.
        loc: the same as a path, for the decision routes; None = as `param` has it.
        rejection: label of the rejection metric; None = the code's, else the row's.
        headers: further reply headers.
    """

    def __init__(  # noqa: PLR0913  # an error's facts
        self,
        kind: AnyKind,
        message: str,
        *,
        code: str | None = None,
        item: int | None = None,
        param: str | None = None,
        rejection: str | None = None,
        headers: Headers = (),
        loc: Loc | None = None,
    ) -> None:
        self.kind = kind
        self.row = ERROR_TABLE[kind]
        self.code = code or self.row.code
        self.param = param
        self.rejection_label = rejection or _CODE_REJECTIONS.get(self.code, self.row.rejection)
        self.headers = headers
        self.loc = loc
        self._text, self._item = message, item
        self.message = _sentence(kind, message, item)
        super().__init__(self.message)

    @property
    def status(self) -> int:
        return self.row.status

    @property
    def nested_type(self) -> str:
        return _CODE_NESTED_TYPES.get(self.code, self.row.nested_type)

    def within(self, instance: int) -> "HttpError":
        """The same error of one instance of several, which the message then names."""
        if self.kind in _OF_THE_WHOLE:
            return self
        item = "" if self._item is None else f", item {self._item}"
        return HttpError(
            self.kind,
            f"{self._text} (instance {instance}{item})",
            code=self.code,
            param=f"instances[{instance}]" + (f".{self.param}" if self.param else ""),
            rejection=self.rejection_label,
            headers=self.headers,
        )

    @property
    def failure_label(self) -> str | None:
        return _CODE_FAILURES.get(self.code, self.row.failure)


def _sentence(kind: AnyKind, message: str, item: int | None) -> str:
    suffix = "" if item is None else f" (item {item})"
    is_bare = kind is ErrorKind.EMPTY and not message.startswith(_EMPTY_PREFIX)
    prefix = _EMPTY_PREFIX if is_bare else ""
    whole = prefix + message + suffix
    return whole.encode("utf-8", "replace").decode("utf-8")


# Clients know these sentences word for word, whatever the route calls the field.
_FIXED_WORDING = {"empty_input", "input_too_long"}


def from_inference(error: InferenceError, field: str = "inputs") -> HttpError:
    """The HTTP error of a runtime error.

    Args:
        error: its message calls the items `inputs`.
        field: the route's name for them.
    """
    headers: Headers = ()
    if error.kind in {ErrorKind.OVERLOADED, ErrorKind.UNHEALTHY}:
        seconds = min(60, max(1, error.retry_after_s or 1))
        headers = (("retry-after", str(seconds)),)
    param = field if error.field == ITEMS_FIELD else error.field
    message = error.message
    if error.code not in _FIXED_WORDING:
        message = message.replace(f"`{ITEMS_FIELD}`", f"`{param or field}`")
    return HttpError(
        error.kind,
        message,
        code=error.code,
        item=error.item,
        param=param,
        rejection=None if error.limit is None else _LIMIT_REJECTIONS[error.limit],
        headers=headers,
    )


def error_body(error: HttpError, shape: Shape) -> bytes:
    """The JSON body of an error in the route's shape."""
    kind = error.kind.value
    if shape is Shape.TEI:
        return orjson.dumps({"error": error.message, "error_type": kind})
    if shape is Shape.SGLANG:
        return orjson.dumps(
            {
                "object": "error",
                "message": error.message,
                "type": _sglang_type(error),
                "param": None,
                "code": error.status,
            }
        )
    nested = {
        "message": error.message,
        "type": error.nested_type,
        "param": error.param,
        "code": error.code,
    }
    return orjson.dumps(
        {"error": nested, "message": error.message, "type": kind, "code": error.status}
    )


def _sglang_type(error: HttpError) -> str:
    if error.kind is ErrorKind.OVERLOADED:
        return "overloaded_error"
    return _SERVER if error.nested_type == _SERVER else _INVALID


MAX_ECHOED_CHARACTERS = 200


def echoed(text: str) -> str:
    """What a client wrote, for a message: no more of it than helps to find it."""
    is_short = len(text) <= MAX_ECHOED_CHARACTERS
    return text if is_short else f"{text[:MAX_ECHOED_CHARACTERS]}..."


def validation(message: str, *, code: str | None = None, param: str | None = None) -> HttpError:
    """A 422."""
    return HttpError(ErrorKind.VALIDATION, message, code=code, param=param)


def malformed(message: str) -> HttpError:
    """A 400 for bytes that are no document."""
    return HttpError(HttpErrorKind.MALFORMED, message)


def unsupported_task(message: str) -> HttpError:
    """A 424 for a model that cannot do this."""
    return HttpError(ErrorKind.BACKEND, message, code="unsupported_task")
