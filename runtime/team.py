"""How many threads an engine call gets: the whole team, or one less while the event loop computes.

A team on every CPU shares one of them with the event loop. Whenever that displaces a thread, all
the others wait for it at the end of their step, and a call of many short steps can take twice as
long as without that thread. Which of the two is shorter depends on the model, the batch and the
traffic, so both are measured as they occur.

Knows nothing of engines and threads; not thread-safe.
"""

from dataclasses import dataclass

IDLE_SHARE = 0.05
"""Up to this share of the calls' time the event loop is no reason to try a smaller team."""
TRIAL_CALLS = 128
"""Every so many calls of a size the other team has its turn, as traffic changes."""
MEMORY = 0.8
"""Weight that the past keeps with each new call."""
GAIN = 1.1
"""How many times as fast the whole team must be, as it takes a CPU away from everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSizes:
    """Threads of one engine call.

    Attributes:
        whole: while nothing else computes.
        spared: one less, so that the event loop has a CPU of its own.
    """

    whole: int
    spared: int


class TeamChoice:
    """Chooses the team of each call by the calls before it."""

    def __init__(self, sizes: TeamSizes) -> None:
        self._sizes = sizes
        self._busy_s = 0.0
        self._call_s = 0.0
        self._records: dict[int, _Record] = {}

    def choose(self, num_tokens: int) -> int:
        """Threads of the next call, of so many tokens."""
        if self._busy_s <= IDLE_SHARE * self._call_s:
            return self._sizes.whole
        record = self._records.setdefault(num_tokens.bit_length(), _Record())
        return self._sizes.spared if record.next_is_spared() else self._sizes.whole

    def note(self, num_threads: int, num_tokens: int, *, call_s: float, busy_s: float) -> None:
        """Learn from a call.

        Args:
            num_threads: its team.
            num_tokens: what it computed.
            call_s: how long it took.
            busy_s: how much CPU time the event loop had meanwhile.
        """
        self._busy_s = MEMORY * self._busy_s + busy_s
        self._call_s = MEMORY * self._call_s + call_s
        record = self._records.setdefault(num_tokens.bit_length(), _Record())
        record.note(call_s / num_tokens, is_spared=num_threads < self._sizes.whole)


class _Record:
    """Seconds per token of calls of about one size, by team."""

    def __init__(self) -> None:
        self._whole_s: float | None = None
        self._spared_s: float | None = None
        self._num_chosen = 0

    def next_is_spared(self) -> bool:
        if self._whole_s is None or self._spared_s is None:
            return self._spared_s is None
        self._num_chosen += 1
        is_trial = self._num_chosen % TRIAL_CALLS == 0
        return (self._spared_s < GAIN * self._whole_s) is not is_trial

    def note(self, token_s: float, *, is_spared: bool) -> None:
        if is_spared:
            self._spared_s = _mix(self._spared_s, token_s)
        else:
            self._whole_s = _mix(self._whole_s, token_s)


def _mix(before: float | None, now: float) -> float:
    return now if before is None else MEMORY * before + (1.0 - MEMORY) * now
