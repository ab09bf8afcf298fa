"""Stops work whose result nobody waits for any more, between two pieces of it.

Knows nothing of what the work is.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import TypeVar

IsWanted = Callable[[], bool]
"""Whether somebody still waits; asked from the thread that works."""

Item = TypeVar("Item")


def always() -> bool:
    return True


def while_wanted(items: Iterable[Item], is_wanted: IsWanted) -> Iterator[Item]:
    """All items, as long as somebody waits for what becomes of them.

    Raises:
        CancelledError: nobody does.
    """
    for item in items:
        if not is_wanted():
            raise CancelledError
        yield item
