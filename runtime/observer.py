"""What the runtime reports while it works. Knows nothing of metrics libraries."""

from typing import Protocol


class Observer(Protocol):
    """Obligations: every method returns at once and never raises.

    All calls come from the event loop. Nobody waits for them: a batch is reported when its requests
    have been given what they wait for.
    """

    def batch_formed(self, *, num_items: int, num_tokens: int) -> None:
        """Hear of a batch that went to the engine; its calls and items follow."""
        ...

    def batch_finished(self, *, engine_s: float, num_tokens: int, num_folded_tokens: int) -> None:
        """Hear of one engine call; of its tokens, the folded ones were computed for others."""
        ...

    def item_finished(self, *, num_tokens: int) -> None: ...


class SilentObserver:
    """Reports nothing; for tests and tools."""

    def batch_formed(self, *, num_items: int, num_tokens: int) -> None: ...

    def batch_finished(
        self, *, engine_s: float, num_tokens: int, num_folded_tokens: int
    ) -> None: ...

    def item_finished(self, *, num_tokens: int) -> None: ...
