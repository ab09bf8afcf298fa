"""Which requests the event loop's thread computes itself: brief ones of a client that is alone.

Handing a call over to an engine thread and back takes a tenth of such a request's time. Lives on
the event loop thread. Knows nothing of engines.
"""

MAX_TOKENS = 64
"""Of a request; beyond, the hand-over is a small part of its time."""
MAX_CALL_S = 0.005
"""So long the event loop may stand still: health checks and new connections wait for it."""
MIN_IN_A_ROW = 32
"""Brief requests without another beside them before the first that is computed at once. Changing
the thread that makes calls takes a millisecond."""
MEMORY = 0.8
"""Weight that the past keeps with each new call."""


class BriefCalls:
    """Watches which requests come, and how long calls of few tokens take."""

    def __init__(self) -> None:
        self._num_in_a_row = 0
        self._call_s: float | None = None

    def called(self, *, num_tokens: int, engine_s: float) -> None:
        """Note an engine call, wherever it ran."""
        if num_tokens > MAX_TOKENS:
            return
        before = engine_s if self._call_s is None else self._call_s
        self._call_s = MEMORY * before + (1.0 - MEMORY) * engine_s

    def asked(self, num_tokens: int, *, is_alone: bool) -> bool:
        """Note a request; tells whether it is to be computed at once."""
        is_brief = self._call_s is not None and self._call_s <= MAX_CALL_S
        if not (is_alone and is_brief and num_tokens <= MAX_TOKENS):
            self._num_in_a_row = 0
            return False
        self._num_in_a_row += 1
        return self._num_in_a_row > MIN_IN_A_ROW
