"""Turns the position of an item at fault into what the client sent it as.

Knows nothing of what can be wrong.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from infinity_v3.runtime.errors import ITEMS_FIELD, SOURCE_FIELD, InferenceError

Item = TypeVar("Item", bound=Hashable)


def first_positions(items: Sequence[Item]) -> dict[Item, int]:
    """Each different item and where it first stands, in that order."""
    first: dict[Item, int] = {}
    for position, item in enumerate(items):
        first.setdefault(item, position)
    return first


class located:  # noqa: N801  # as the two below; on the way of every request, so not a generator
    """A bare input has no position, so its errors carry none."""

    def __init__(self, *, is_list: bool) -> None:
        self._is_list = is_list

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, InferenceError) and not self._is_list:
            error.item = None


@contextmanager
def located_at(positions: Sequence[int]) -> Iterator[None]:
    """The items are some of the request's, which stand at these positions in its list."""
    try:
        yield
    except InferenceError as error:
        if error.item is not None:
            error.item = positions[error.item]
        raise


@contextmanager
def located_behind_source() -> Iterator[None]:
    """The first item is the source of a comparison, the others are the request's list."""
    try:
        yield
    except InferenceError as error:
        if error.item == 0:
            raise _of_source(error) from None
        if error.item is not None:
            error.item -= 1
        raise


def _of_source(error: InferenceError) -> InferenceError:
    field = SOURCE_FIELD if error.field == ITEMS_FIELD else error.field
    message = f"{error.message} ({SOURCE_FIELD})"
    return InferenceError(error.kind, error.code, message, field=field)
