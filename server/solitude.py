"""Whether the server has one client only, which sends a request when it has the answer to the last.

Event loop only. Knows nothing of what requests are.
"""

import asyncio
from collections.abc import Callable


class Solitude:
    """Watches how requests overlap.

    Args:
        num_admitted: how many are under way now.
    """

    def __init__(self, num_admitted: Callable[[], int]) -> None:
        self._num_admitted = num_admitted
        self._is_crowded = False

    @property
    def is_alone(self) -> bool:
        """Of the request under way: no other is, and none came while the last one was."""
        return self._num_admitted() == 1 and not self._is_crowded

    def ended(self) -> None:
        """A request was answered.

        Those that came while the event loop stood still are seen only now: the transport's call
        for such a request stands in the loop's queue before the first look, and what admits it
        before the second. The next request of the same client comes later.
        """
        self._is_crowded = True
        if self._num_admitted() == 0:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._look)

    def _look(self) -> None:
        self._is_crowded = self._num_admitted() > 0
