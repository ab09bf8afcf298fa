"""A team of all CPUs gives one up where calls are shorter without it, and only while it must."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.runtime.team import GAIN, IDLE_SHARE, TRIAL_CALLS, TeamChoice, TeamSizes

TOKENS = 190
SIZES = TeamSizes(whole=4, spared=3)


@dataclass
class Calls:
    """Calls that take as long as is said for their team.

    Attributes:
        whole_s, spared_s: seconds of a call by team.
        share: of a call's time in which the event loop computes.
    """

    whole_s: float
    spared_s: float
    share: float
    choice: TeamChoice = field(default_factory=lambda: TeamChoice(SIZES))

    def run(self, count: int, num_tokens: int = TOKENS) -> list[int]:
        chosen = []
        for _ in range(count):
            size = self.choice.choose(num_tokens)
            call_s = self.whole_s if size == SIZES.whole else self.spared_s
            self.choice.note(size, num_tokens, call_s=call_s, busy_s=self.share * call_s)
            chosen.append(size)
        return chosen


def test_an_idle_event_loop_is_no_reason() -> None:
    assert set(Calls(whole_s=2.0, spared_s=1.0, share=0.0).run(200)) == {4}
    assert set(Calls(whole_s=2.0, spared_s=1.0, share=IDLE_SHARE / 2).run(200)) == {4}


def test_a_displaced_team_gives_a_thread_up_and_keeps_trying() -> None:
    chosen = Calls(whole_s=2.0, spared_s=1.0, share=0.4).run(1 + 10 * TRIAL_CALLS)
    assert chosen[0] == 4, "nothing was known"
    assert chosen.count(4) == 1 + 9
    assert 0 < chosen[1:].index(4) <= TRIAL_CALLS


def test_a_team_that_is_much_faster_whole_stays_whole() -> None:
    chosen = Calls(whole_s=1.0, spared_s=2.0, share=0.4).run(1 + 10 * TRIAL_CALLS)
    assert chosen[1] == 3, "it was tried"
    assert chosen[2:].count(3) == 9


def test_of_equals_the_smaller_team_is_taken() -> None:
    for spared_s, wanted in ((1.0, 3), (0.99 * GAIN, 3), (1.01 * GAIN, 4)):
        chosen = Calls(whole_s=1.0, spared_s=spared_s, share=0.4).run(TRIAL_CALLS)
        assert set(chosen[2:]) == {wanted}


def test_calls_of_other_sizes_are_judged_by_themselves() -> None:
    calls = Calls(whole_s=2.0, spared_s=1.0, share=0.4)
    assert calls.run(TRIAL_CALLS // 2)[2:].count(4) == 0
    calls.whole_s, calls.spared_s = 10.0, 20.0
    assert calls.run(TRIAL_CALLS // 2, 8 * TOKENS)[2:].count(3) == 0
    calls.whole_s, calls.spared_s = 2.0, 1.0
    assert calls.run(4).count(4) == 0


def test_the_choice_follows_the_traffic() -> None:
    calls = Calls(whole_s=2.0, spared_s=1.0, share=0.4)
    calls.run(20)
    calls.share = 0.0  # one client is left
    assert set(calls.run(40)[20:]) == {4}
    calls.share, calls.whole_s, calls.spared_s = 0.4, 1.0, 2.0  # other requests, other times
    assert calls.run(20 * TRIAL_CALLS)[-TRIAL_CALLS:].count(3) <= 1


@given(
    times=st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)), max_size=80),
    tokens=st.integers(1, 1 << 20),
)
def test_the_team_is_always_one_of_the_two(times: list[tuple[float, float]], tokens: int) -> None:
    choice = TeamChoice(SIZES)
    for call_s, busy_s in times:
        size = choice.choose(tokens)
        assert size in (SIZES.whole, SIZES.spared)
        choice.note(size, tokens, call_s=call_s, busy_s=busy_s)
