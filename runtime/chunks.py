"""Parts of a request that are tokenised at once. Knows nothing of tokenizers."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from infinity_v3.runtime.requests import ClassifyInput

CHUNK_ITEMS = 32
"""Items encoded per call, which releases the GIL: between two calls others get their turn."""

Item = TypeVar("Item", bound=ClassifyInput)


def chunks(items: Sequence[Item], kind: type) -> Iterator[tuple[int, list[Item]]]:
    """Parts of the items and where each begins: all of one kind or none, and none too large."""
    start = 0
    for _, run in groupby(items, key=lambda item: isinstance(item, kind)):
        alike = list(run)
        for offset in range(0, len(alike), CHUNK_ITEMS):
            yield start + offset, alike[offset : offset + CHUNK_ITEMS]
        start += len(alike)
