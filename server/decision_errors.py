"""Errors of the decision routes: their statuses and bodies, and those of a question.

The one place where they differ from the table in errors.py. Knows nothing of what is checked.
"""

import orjson

from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.server.errors import AnyKind, HttpError, HttpErrorKind, Loc

BODY: Loc = ("body",)
_STATUSES: dict[AnyKind, int] = {
    HttpErrorKind.MALFORMED: 422,
    ErrorKind.EMPTY: 422,
    ErrorKind.BACKEND: 500,
}
_TYPES: dict[AnyKind, str] = {
    HttpErrorKind.UNAUTHORIZED: "authentication_error",
    HttpErrorKind.PAYLOAD_TOO_LARGE: "request_too_large",
    HttpErrorKind.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    ErrorKind.OVERLOADED: "rate_limit_error",
    ErrorKind.BACKEND: "internal_error",
    ErrorKind.INTERNAL: "internal_error",
}
_UNSUPPORTED_TASK = "unsupported_task"
_VALIDATION_STATUS = 422


def decision_status(error: HttpError) -> int:
    """The status of an error on a decision route."""
    is_ours = error.code != _UNSUPPORTED_TASK
    return _STATUSES.get(error.kind, error.row.status) if is_ours else error.row.status


def decision_body(error: HttpError) -> bytes:
    """The JSON body of an error on a decision route."""
    if decision_status(error) == _VALIDATION_STATUS:
        is_json = error.kind is not HttpErrorKind.MALFORMED
        entry = {
            "loc": list(error.loc or _loc_of(error.param)),
            "msg": error.message,
            "type": error.code if is_json else "json_invalid",
        }
        return orjson.dumps({"detail": [entry]})
    kind = _TYPES.get(error.kind, error.code)
    if error.code == _UNSUPPORTED_TASK:
        kind = error.code
    return orjson.dumps({"detail": {"error_type": kind, "message": error.message}})


def invalid(message: str, kind: str, *path: str | int) -> HttpError:
    """A 422 for a value of the body.

    Args:
        message: one sentence, without the value's place.
        kind: machine-readable reason.
        path: keys and positions that lead to the value.
    """
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    shown = place.removeprefix(".")[:200]
    return HttpError(
        ErrorKind.VALIDATION,
        f"`{shown}`: {message}" if shown else message,
        code=kind,
        param=shown or None,
        loc=(*BODY, *path),
    )


def _loc_of(param: str | None) -> Loc:
    return BODY if param is None else (*BODY, param)
