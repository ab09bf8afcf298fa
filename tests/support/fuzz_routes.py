"""Which bodies every POST route of the server takes, read from the route table itself.

A route that is added tomorrow is found here without a change. Knows nothing of documents.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from infinity_v3.server.app import all_routes
from infinity_v3.server.errors import Shape
from infinity_v3.server.router import Route, Router
from infinity_v3.server.schemas import RoutedBody


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRoute:
    """One POST path, and the family of its errors.

    Attributes:
        body_types: what it takes, or what the parts of its body are.
        whole_type: a body that holds several of those; None = each is a body of its own.
    """

    path: str
    body_types: tuple[type[msgspec.Struct], ...]
    shape: Shape
    whole_type: type[msgspec.Struct] | None = None


def post_routes() -> tuple[FuzzRoute, ...]:
    """Every POST route.

    Raises:
        AssertionError: a route does not say which body it takes.
    """
    routes = all_routes()
    router = Router(routes)
    return tuple(
        _described(route, router.replies_of(route.path)[0])
        for route in routes
        if route.method == "POST"
    )


def _described(route: Route, shape: Shape) -> FuzzRoute:
    endpoint = getattr(route.handler, "__self__", None)
    types = tuple(dict.fromkeys(_body_types(endpoint)))
    whole = _converted_by(endpoint)
    if not types and whole is not None:
        types, whole = (whole,), None
    assert types, f"POST {route.path} names no body type, so nothing can be made for it"
    return FuzzRoute(path=route.path, body_types=types, shape=shape, whole_type=whole)


def _body_types(endpoint: object) -> Iterator[type[msgspec.Struct]]:
    """The body types of an endpoint, and of the endpoints that it hands over to."""
    if isinstance(endpoint, type) and issubclass(endpoint, msgspec.Struct):
        yield endpoint
    elif isinstance(endpoint, Mapping):
        for value in endpoint.values():
            yield from _body_types(value)
    elif isinstance(endpoint, tuple | list):
        for value in endpoint:
            yield from _body_types(value)
    elif dataclasses.is_dataclass(endpoint) and not isinstance(endpoint, type):
        for field in dataclasses.fields(endpoint):
            yield from _body_types(getattr(endpoint, field.name))


def _converted_by(endpoint: object) -> type[msgspec.Struct] | None:
    """The body type that an endpoint's own code names, if any."""
    run = getattr(type(endpoint), "run", None)
    if run is None:
        return None
    named = (run.__globals__.get(name) for name in run.__code__.co_names)
    found = [
        value
        for value in named
        if isinstance(value, type) and issubclass(value, RoutedBody) and value is not RoutedBody
    ]
    return found[0] if found else None
