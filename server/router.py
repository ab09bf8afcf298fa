"""Finds the route of a method and a path. Paths match exactly. Knows nothing of what routes do."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from infinity_v3.server.context import ServerContext
from infinity_v3.server.errors import Headers, HttpError, HttpErrorKind, Shape
from infinity_v3.server.exchange import Exchange, Reply

Handler = Callable[[ServerContext, Exchange], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one path; a path that ends in `/*` takes the rest as an identifier.

    Attributes:
        is_open: needs no key.
        is_logged: leaves a record in the request log.
        headers: stand on every reply of the path, errors included.
    """

    method: str
    path: str
    handler: Handler
    shape: Shape = Shape.TEI
    is_open: bool = False
    is_logged: bool = False
    headers: Headers = ()


class Router:
    """The route table, looked up by path and then by method."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._prefixes: list[tuple[str, dict[str, Route]]] = []
        for route in routes:
            if route.path.endswith("/*"):
                self._prefixes.append((route.path[:-1], {route.method: route}))
            else:
                self._exact.setdefault(route.path, {})[route.method] = route
        self._replies = {path: self._work_out_replies(path) for path in self._exact}

    def find(self, method: str, path: str) -> Route:
        """The route; HEAD is answered by GET.

        Raises:
            HttpError: 404, or 405 with `Allow`.
        """
        methods = self._methods(path)
        if methods is None:
            raise HttpError(HttpErrorKind.NOT_FOUND, f"no such path: {path[:200]}")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
            raise HttpError(
                HttpErrorKind.METHOD_NOT_ALLOWED,
                f"{path} takes {', '.join(allowed)}",
                headers=(("allow", ", ".join(allowed)),),
            )
        return route

    def replies_of(self, path: str) -> tuple[Shape, Headers]:
        """The shape of errors on that path, known or not, and the headers of all its replies."""
        known = self._replies.get(path)
        return self._work_out_replies(path) if known is None else known

    def _work_out_replies(self, path: str) -> tuple[Shape, Headers]:
        methods = self._methods(path)
        if methods:
            headers = tuple(header for route in methods.values() for header in route.headers)
            return next(iter(methods.values())).shape, headers
        return (Shape.OPENAI if path.startswith(("/v1/", "/v2/")) else Shape.TEI), ()

    def _methods(self, path: str) -> dict[str, Route] | None:
        if path in self._exact:
            return self._exact[path]
        for prefix, methods in self._prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                return methods
        return None
