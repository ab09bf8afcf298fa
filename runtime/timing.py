"""Seconds per named phase. Knows nothing of what the phases do."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class PhaseTimer:
    """Adds up wall-clock seconds under each name; belongs to one thread."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase, in the order the phases were first left."""
        return dict(self._seconds)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block, also when it raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started
