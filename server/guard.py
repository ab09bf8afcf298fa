"""Who may call: the API key, and the browser origins of CORS. Knows nothing of routes."""

import hmac

from infinity_v3.server.config import ServeConfig
from infinity_v3.server.errors import Headers, HttpError, HttpErrorKind
from infinity_v3.server.exchange import Exchange, Reply

_ALLOWED_HEADERS = (
    "authorization, content-type, content-encoding, accept, x-request-id, traceparent, "
    "request-timeout-ms, request-deadline-ms"
)
_EXPOSED_HEADERS = (
    "x-request-id, retry-after, x-compute-type, x-compute-time, x-total-time, "
    "x-compute-characters, x-compute-tokens, x-tokenization-time, x-queue-time, x-inference-time"
)


class Guard:
    """Checks keys and builds CORS headers from the configuration."""

    def __init__(self, config: ServeConfig) -> None:
        self._key = config.api_key.encode() if config.api_key is not None else None
        origins = frozenset(config.cors_allow_origin)
        self._origins = None if not origins or "*" in origins else origins

    def check_key(self, exchange: Exchange) -> None:
        """Refuse a request without the right key.

        Raises:
            HttpError: 401.
        """
        if self._key is None:
            return
        header = exchange.header("authorization") or ""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            hint = "the header lacks its scheme, send" if header else "send"
            raise _unauthorized(f"an API key is required: {hint} 'Authorization: Bearer KEY'")
        if not hmac.compare_digest(token.strip().encode("utf-8", "replace"), self._key):
            raise _unauthorized("the API key is wrong")

    def cors_headers(self, exchange: Exchange) -> Headers:
        """Headers of every reply."""
        origin = exchange.header("origin")
        if self._origins is None:
            allowed = "*"
        elif origin in self._origins and origin is not None:
            allowed = origin
        else:
            return ()
        return (
            ("access-control-allow-origin", allowed),
            ("access-control-expose-headers", _EXPOSED_HEADERS),
        )

    def preflight(self) -> Reply:
        """The reply to OPTIONS on any path."""
        return Reply(
            status=204,
            headers=(
                ("access-control-allow-methods", "GET, POST, OPTIONS"),
                ("access-control-allow-headers", _ALLOWED_HEADERS),
                ("access-control-max-age", "600"),
            ),
        )


def _unauthorized(message: str) -> HttpError:
    return HttpError(HttpErrorKind.UNAUTHORIZED, message, headers=(("www-authenticate", "Bearer"),))
